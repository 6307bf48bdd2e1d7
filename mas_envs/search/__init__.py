"""The router-searcher-answerer team over a corpus: rules, prompts, experts, scoring and the embedded world."""
