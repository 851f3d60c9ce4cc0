"""What agents keep of ranks' memory: receipts, allocations, what outlives whom. No torch."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import msgspec
import pytest

from lightloom.run import board as b
from lightloom.run import keeper, system


class Rank:
    """The memory of a rank, laid out by hand."""

    def __init__(self) -> None:
        self.board_fd, memory = system.shared("ll-test-board", b.SIZE)
        self.board = b.Board(memory)
        self.arena_fd, self.arena = system.shared("ll-test-arena", mmap.PAGESIZE)
        self.info = msgspec.json.encode(
            {"pid": os.getpid(), "board_fd": self.board_fd, "arena_fd": self.arena_fd,
             "address": "", "numel": 4, "slots": 1}
        ).decode()  # fmt: skip

    def allocate(self, index: int) -> int:
        """Make a buffer as copies.py does; returns its descriptor."""
        fd, _ = system.shared(f"ll-test-{index}", mmap.PAGESIZE)
        generation = self.board.get(keeper.GENERATION) + 1
        self.board.set(keeper.word(index, keeper.FD), fd)
        self.board.set(keeper.word(index, keeper.MADE), generation)
        self.board.set(keeper.GENERATION, generation)
        return fd

    def whole(self, index: int, step: int, layout: int = 0) -> None:
        """Say that a buffer holds a whole copy."""
        self.board.set(keeper.word(index, keeper.LAYOUT), layout)
        self.board.set(keeper.word(index, keeper.STEP), step + 1)


@pytest.fixture
def rank() -> Iterator[Rank]:
    made = Rank()
    yield made
    made.board.close()


def test_the_own_agent_and_the_next_keep_a_rank() -> None:
    assert keeper.ring(2, (0, 1, 2)) == [2, 0] and keeper.ring(0, (0,)) == [0]
    assert keeper.ring(7, (0, 1)) == [7], "an agent outside the epoch has its own ranks only"


def test_a_receipt_names_agent_and_allocation(rank: Rank) -> None:
    kept = keeper.Keeper(4)
    kept.look({11: (1, rank.info)}, frozenset())
    assert rank.board.get(keeper.ACKS + 1) == 0, "nothing is allocated yet"
    rank.allocate(0)
    kept.look({11: (1, rank.info)}, frozenset())
    assert rank.board.get(keeper.ACKS + 1) == keeper.ack(4, 1) != keeper.ack(3, 1)
    kept.close()


def test_what_is_kept_is_whole_or_one_gradient_away(rank: Rank) -> None:
    kept = keeper.Keeper(0)
    rank.allocate(0)
    kept.look({11: (0, rank.info)}, frozenset())
    assert kept.entries() == (), "nothing is whole"
    rank.whole(0, step=7)
    assert [(k.step, k.number) for k in kept.entries()] == [(7, -1)]
    rank.board.set(keeper.NUMBER, 3)
    rank.board.set(keeper.GRADIENT, 8 + 1)
    assert [(k.step, k.number) for k in kept.entries()] == [(7, -1), (8, 3)]
    rank.board.set(keeper.AFTER, 1)
    assert [k.step for k in kept.entries()] == [7], "it goes on from the other buffer's state"
    rank.board.set(keeper.GRADIENT, 0)
    rank.board.set(keeper.word(0, keeper.STEP), 0)
    assert kept.entries() == (), "it is being written over"
    kept.close()


def test_an_allocation_the_agent_never_saw_is_not_offered(rank: Rank) -> None:
    """The rank dies right after it took new memory: the old buffer holds an older state."""
    kept = keeper.Keeper(0)
    first = rank.allocate(0)
    rank.whole(0, step=7)
    kept.look({11: (0, rank.info)}, frozenset())
    lost = msgspec.json.decode(kept.entries()[0].info, type=keeper.Lost)
    assert lost.find(rank.board, 7, (0, 0, 0)) == 0
    rank.allocate(0)
    os.close(first)
    rank.whole(0, step=8)
    assert kept.entries() == () and lost.find(rank.board, 8, (0, 0, 0)) is None
    kept.look({11: (0, rank.info)}, frozenset())
    assert [k.step for k in kept.entries()] == [8]
    kept.close()


def test_memory_is_let_go_unless_the_epoch_needs_it(rank: Rank) -> None:
    kept = keeper.Keeper(0)
    rank.allocate(0)
    rank.whole(0, step=7)
    kept.look({11: (0, rank.info)}, frozenset())
    kept.look({}, frozenset({11}))
    assert [k.uid for k in kept.entries()] == [11], "lost, and still wanted"
    kept.look({}, frozenset())
    assert kept.entries() == ()


def test_a_rank_that_died_before_it_was_seen_is_not_kept(rank: Rank) -> None:
    gone = msgspec.json.decode(rank.info)
    gone["pid"] = 2**22 - 3
    kept = keeper.Keeper(0)
    kept.look({11: (0, msgspec.json.encode(gone).decode())}, frozenset())
    assert kept.holds == {}
