"""The encyclopedias: the same everywhere, names that never clash, facts that stay in their split."""

import hashlib
import itertools
import os
import random
import subprocess
import sys

import pytest

from mas_envs.errors import TaskError
from mas_envs.search.names import NameBook, syllables
from mas_envs.search.relations import RELATIONS, Kind, relations_of
from mas_envs.search.small_world import SmallWorld
from mas_envs.search.world import REALM_SIZE, Entity, World

DIGEST = """
import hashlib, itertools, sys
from mas_envs.search.small_world import SmallWorld
from mas_envs.search.world import World
from mas_envs.search.questions import world_tasks
text = [passage.contents for passage in itertools.chain(World(1000, 3).passages(), SmallWorld(3).passages())]
text += [repr(task) for task in world_tasks(hops=(1, 2, 3), num_tasks=200, seed=3)]
print(hashlib.sha256("\\n".join(text).encode()).hexdigest())
"""


def digest_in_new_process(hash_seed: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", DIGEST],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_world_is_the_same_in_every_process() -> None:
    digests = {digest_in_new_process(hash_seed) for hash_seed in ("0", "12345")}
    assert len(digests) == 1
    assert digests != {hashlib.sha256(b"").hexdigest() + "\n"}


def test_seed_changes_the_world() -> None:
    worlds = [next(World(250, seed).passages()) for seed in range(5)]
    assert len({passage.title for passage in worlds}) == 5


def test_there_are_at_least_twenty_relations_between_all_kinds() -> None:
    assert len({relation.name for relation in RELATIONS}) == len(RELATIONS) >= 20
    assert all(relations_of(kind) for kind in Kind)
    for relation in RELATIONS:
        assert len(relation.sentences) >= 2
        assert len(relation.questions) >= 2
        assert all("{x}" in text for text in (*relation.sentences, *relation.nouns, *relation.questions))
        assert all("{y}" in text for text in relation.sentences)


@pytest.mark.parametrize("size", [250, 1000, 1013, 4999])
def test_passages_are_as_many_as_asked_for_with_ids_in_order(size: int) -> None:
    passages = list(World(size).passages())
    assert [passage.id for passage in passages] == [str(number) for number in range(size)]
    assert len({passage.title for passage in passages}) == size


def test_small_world_is_the_start_of_a_large_one_and_both_are_streams() -> None:
    small = list(World(250).passages())
    assert list(itertools.islice(World(1_000_000).passages(), 250)) == small


def test_titles_of_realms_far_apart_differ() -> None:
    world = World(1_000_000)
    titles = [passage.title for number in range(0, world.num_realms, 97) for passage in world.realm(number).passages]
    assert len(titles) == len(set(titles)) > 10_000


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (NameBook.person, 400_000),
        (NameBook.city, 120_000),
        (NameBook.country, 20_000),
        (NameBook.river, 40_000),
        (NameBook.work, 200_000),
        (NameBook.organisation, 120_000),
    ],
)
def test_names_never_repeat_in_a_world_of_a_million_passages(make: object, count: int) -> None:
    assert callable(make)
    book = NameBook(0)
    numbers = [*range(3000), *random.Random(0).sample(range(3000, count), 3000)]
    assert len({make(book, number) for number in numbers}) == len(numbers)


def test_words_of_equal_length_differ() -> None:
    assert len({syllables(code, 2) for code in range(70**2)}) == 70**2


def test_facts_never_leave_their_realm() -> None:
    realm = World(1000).realm(7)
    own = {entity.name for entity in realm.entities}
    for entity in realm.entities:
        assert set(entity.facts) == {relation.name for relation in relations_of(entity.kind)}
        for fact in entity.facts.values():
            if isinstance(fact, Entity):
                assert fact.name in own - {entity.name}


def test_article_states_every_fact_and_alias() -> None:
    realm = World(1000).realm(3)
    for entity, passage in zip(realm.entities, realm.passages, strict=False):
        assert passage.title == entity.name
        assert all(entity.fact_text(name) in passage.text for name in entity.facts)
        assert (entity.alias or "") in passage.text
    assert any(entity.alias for entity in realm.entities)


def test_distractors_name_entities_and_state_no_fact() -> None:
    realm = World(1000).realm(3)
    distractors = realm.passages[len(realm.entities) :]
    assert len(realm.passages) == REALM_SIZE
    assert len(distractors) >= 5
    for passage in distractors:
        assert any(entity.name in passage.text for entity in realm.entities)
        assert not any(word in passage.text for word in (" born ", "teacher", "capital", "founded"))


def test_every_realm_has_names_that_are_nearly_the_same() -> None:
    names = {entity.name for entity in World(1000).realm(0).entities}
    assert any(f"New {name}" in names for name in names)
    assert any(f"{name} the Younger" in names for name in names)


def test_spouses_are_married_to_each_other() -> None:
    for entity in World(1000).realm(1).entities:
        spouse = entity.facts.get("spouse")
        if isinstance(spouse, Entity):
            assert spouse.facts["spouse"] is entity


def test_one_realm_of_five_is_held_out() -> None:
    world = World(5000)
    assert sum(map(world.is_test, range(world.num_realms))) == world.num_realms // 5


def test_small_world_has_one_fact_in_a_passage_and_training_names_hold_every_word() -> None:
    world = SmallWorld()
    passages = list(world.passages())
    assert len(passages) == world.size == 3000
    assert len({passage.title for passage in passages}) == 500
    rng = random.Random(0)
    train = {entity.name for entity in itertools.islice(world.draw_entities(rng, "train"), 5000)}
    test = {entity.name for entity in itertools.islice(world.draw_entities(rng, "test"), 2000)}
    assert (len(train), len(test), train & test) == (400, 100, set())
    assert {word for name in test for word in name.split()} <= {word for name in train for word in name.split()}


@pytest.mark.parametrize("size", [0, 249, 1_000_001, 300.0, True, "large"])
def test_world_of_another_size_is_refused(size: object) -> None:
    with pytest.raises(
        TaskError, match=r"world size=.*: expected a whole number of passages from 250 to 1000000, or 'sm"
    ):
        World(size)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [SmallWorld, lambda seed: World(1000, seed)])
def test_seed_that_is_no_whole_number_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(TaskError, match=r"world seed=0\.5: expected a whole number"):
        make(0.5)
