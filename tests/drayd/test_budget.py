"""The budget for requests in flight: never exceeded, fair, and nothing of it is lost."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drayd.budget import Budget

MAX_BYTES = 100


class Client:
    """Asks again for the same size when it is called back, as a connection does."""

    def __init__(self, budget: Budget, size: int) -> None:
        self.budget = budget
        self.size = size
        self.has = False
        self.asked = 0

    def ask(self) -> None:
        self.asked += 1
        self.has = self.budget.acquire(self.size, self.ask)


class BudgetMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget(MAX_BYTES)
        self.clients: list[Client] = []
        """In the order in which they came."""

    @rule(size=st.sampled_from([1, 10, 50, 100, 300]))
    def come(self, size: int) -> None:
        client = Client(self.budget, size)
        self.clients.append(client)
        client.ask()

    @precondition(lambda self: any(client.has for client in self.clients))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([each for each in self.clients if each.has]))
        self.clients.remove(client)
        self.budget.release(client.size)

    @precondition(lambda self: any(not client.has for client in self.clients))
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([each for each in self.clients if not each.has]))
        self.clients.remove(client)
        self.budget.forget(client.ask)

    @invariant()
    def what_is_used_is_what_clients_have(self) -> None:
        held = [client.size for client in self.clients if client.has]
        assert self.budget.used == sum(held)
        assert sum(held) <= MAX_BYTES or len(held) == 1

    @invariant()
    def those_who_came_first_are_served_first(self) -> None:
        served = [client.has for client in self.clients]
        assert served == sorted(served, reverse=True)

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        waiting = next((client for client in self.clients if not client.has), None)
        if waiting is not None:
            assert self.budget.used
            assert self.budget.used + waiting.size > MAX_BYTES

    @invariant()
    def nobody_is_asked_in_vain(self) -> None:
        assert all(client.asked == 1 + client.has or client.asked == 1 for client in self.clients)


TestBudget = BudgetMachine.TestCase
TestBudget.settings = settings(max_examples=60, stateful_step_count=30)


def test_a_large_request_is_not_starved_by_small_ones() -> None:
    budget = Budget(MAX_BYTES)
    small = [Client(budget, 10) for _ in range(5)]
    for client in small:
        client.ask()
    large = Client(budget, 90)
    large.ask()
    for _ in range(100):
        late = Client(budget, 10)
        late.ask()
        small.append(late)
        done = small.pop(0)
        assert done.has
        budget.release(done.size)
        if large.has:
            return
    raise AssertionError("the large request waits for ever")


def test_who_was_called_back_and_goes_away_leaves_the_rest() -> None:
    budget = Budget(MAX_BYTES)
    budget.acquire(100, lambda: None)
    assert not budget.acquire(50, lambda: None)
    other = Client(budget, 60)
    other.ask()
    budget.release(100)
    assert other.has and budget.used == 60
