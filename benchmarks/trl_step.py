"""TRL's side of `step_vs_trl`: runs in an environment that has TRL and not this project; prints one JSON line."""

import itertools
import json
import random
import resource
import statistics
import sys
import tempfile
import time
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

settings = json.loads(sys.argv[1])
torch.set_num_threads(settings["threads"])
torch.manual_seed(0)
vocabulary = {"<pad>": 0, "<eos>": 1, **{str(digit): 2 + digit for digit in range(10)}}
vocabulary |= {f"<{index}>": index for index in range(len(vocabulary), settings["shape"]["vocab_size"])}
inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
inner.pre_tokenizer = pre_tokenizers.Digits(individual_digits=True)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>", padding_side="left")
model = Qwen3ForCausalLM(Qwen3Config(**settings["shape"], eos_token_id=1, pad_token_id=0, bos_token_id=None))
steps, prompts, group = settings["steps"], settings["prompts"], settings["group"]
draw = random.Random(1)
rows = ["".join(draw.choices("0123456789", k=settings["prompt_tokens"])) for _ in range(prompts * steps)]
generate: list[float] = []
ends: list[float] = []


class Timed(GRPOTrainer):
    """Measures generation."""

    def _generate_single_turn(self, *arguments: Any, **keywords: Any) -> Any:
        began = time.perf_counter()
        result = super()._generate_single_turn(*arguments, **keywords)
        generate.append(time.perf_counter() - began)
        return result


class Clock(TrainerCallback):
    """Notes when each step ends."""

    def on_step_end(self, *arguments: Any, **keywords: Any) -> None:
        """Called by the trainer."""
        ends.append(time.perf_counter())


def reward(completions: Any, completion_ids: Any, **keywords: Any) -> list[float]:
    """Differs between completions, so that every row has a gradient."""
    assert all(len(ids) == settings["new_tokens"] for ids in completion_ids)
    return [(sum(ids) % 97) / 97 for ids in completion_ids]


on_gpu = settings["device"] == "cuda"
with tempfile.TemporaryDirectory() as scratch:
    trainer = Timed(
        model=model,
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=scratch,
            use_cpu=not on_gpu,
            bf16=False,
            fp16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=prompts * group,
            num_generations=group,
            max_completion_length=settings["new_tokens"],
            generation_kwargs={"min_new_tokens": settings["new_tokens"]},
            max_steps=steps,
            learning_rate=1e-4,
            beta=0.0,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=Dataset.from_dict({"prompt": rows}),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    trainer.train()
step_s = [after - before for before, after in itertools.pairwise(ends)]
print(
    json.dumps(
        {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "step_s": statistics.median(step_s),
            "generate_s": statistics.median(generate[1:]),
            "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }
    )
)
