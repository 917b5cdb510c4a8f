"""The corpus generator: determinism, held-out samples, and the form of its documents."""

from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from training.corpus import SUBJECTS, documents, held_out_samples
from training.corpus.render import END_OF_TEXT, IM_END
from training.corpus.sample import canonical, expand
from training.questions import QUESTIONS


def test_same_seed_gives_the_same_documents():
    """Two streams with one seed agree; another seed gives another stream."""
    first, second, other = (list(islice(documents(seed), 300)) for seed in (7, 7, 8))
    assert first == second
    assert first != other


def test_documents_are_well_formed():
    """Every document has a prompt and an answer, and ends with the end token of its layout."""
    for document in islice(documents(1), 3000):
        assert document.prompt.strip()
        assert document.answer.strip()
        assert document.end == (IM_END if document.prompt.endswith("assistant\n") else END_OF_TEXT)
        assert "[" not in document.prompt + document.answer
        assert "{" not in document.prompt + document.answer


def test_held_out_prompts_are_not_trained_on():
    """No held-out prompt appears among many training documents."""
    held_out = {sample.prompt for sample in islice(held_out_samples(3), 200)}
    trained = {document.prompt for document in islice(documents(4), 20_000)}
    assert not held_out & trained


def test_every_subject_holds_something_out():
    """Subjects with phrasings of their own are all part of the evaluation."""
    subjects = {sample.subject for sample in islice(held_out_samples(5), 400)}
    assert len(subjects) >= len(SUBJECTS) - 1


@settings(deadline=None, max_examples=50)
@given(st.randoms(use_true_random=False))
def test_expansion_chooses_among_alternatives(rng):
    """`expand` picks one of each group, nested or not; `canonical` always the first."""
    assert expand(rng, "[a|b[c|d]] [e|]") in {"a e", "a ", "bc e", "bc ", "bd e", "bd "}
    assert canonical("[a|b[c|d]] [e|]") == "a e"


def test_questions_by_hand_are_distinct():
    """No question is there twice, and each has the keys of a right answer."""
    prompts = [prompt for _, prompt, _ in QUESTIONS]
    assert len(set(prompts)) == len(prompts)
    assert all(key for _, _, keys in QUESTIONS for key in keys)
