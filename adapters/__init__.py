"""Thin bridges from the environment contract to a consumer, one module per foreign library; imports none of them."""
