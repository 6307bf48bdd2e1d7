"""The solver-verifier loop on math problems: rules, prompts, experts, grading and the embedded arithmetic."""
