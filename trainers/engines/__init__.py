"""Generation engines behind one contract: see `base.Engine`."""
