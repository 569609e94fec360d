"""Any sequence of operations leaves a store equal to a dictionary that did the same."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from metadata.store import Change, Check, Conflict, Delete, MetadataStore, Put, Session, Watch
from tests.contract.stores import STORES

SCOPES = st.sampled_from(["one", "two"])
NAMES = st.sampled_from(["a", "b", "c", "d", "é"])
BOUNDS = st.sampled_from(["", "b", "c", "c!", "é", "~session", "\U0010ffff"])
WRITES = st.dictionaries(NAMES, st.none() | st.binary(max_size=20), max_size=4)


class StoreMachine(RuleBasedStateMachine):
    """The keys of a scope are /<scope>/<name>, with one ephemeral key in each."""

    kind: str

    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.under_test = STORES[self.kind](Path(self.folder.name))
        self.model: dict[str, tuple[bytes, int]] = {}
        self.last_version = 0
        self.session: Session | None = None
        self.connect()

    def connect(self) -> None:
        async def run() -> tuple[MetadataStore, Watch]:
            store = await self.under_test.client()
            return store, store.watch("/")

        self.store, self.watch = self.runner.run(run())
        self.watched = dict(self.model)

    def teardown(self) -> None:
        self.runner.run(self.under_test.close())
        self.runner.close()
        self.folder.cleanup()

    @rule(scope=SCOPES, values=WRITES, checked=st.lists(NAMES, max_size=2), stale=st.booleans())
    def commit(
        self, scope: str, values: dict[str, bytes | None], checked: list[str], stale: bool
    ) -> None:
        writes: list[Put | Delete] = []
        for name, value in values.items():
            key = f"/{scope}/{name}"
            writes.append(Delete(key) if value is None else Put(key, value))
        checks = []
        for name in checked:
            row = self.model.get(f"/{scope}/{name}")
            version = row[1] if row else None
            checks.append(Check(f"/{scope}/{name}", self.last_version + 1 if stale else version))
        try:
            result = self.runner.run(self.store.commit(scope, checks, writes))
        except Conflict:
            assert stale
            assert checks
            return
        assert not (stale and checks)
        if writes:
            assert result.version > self.last_version
            self.last_version = result.version
        for write in writes:
            if isinstance(write, Put):
                self.model[write.key] = (write.value, result.version)
            else:
                self.model.pop(write.key, None)

    @rule(scope=SCOPES, value=st.binary(max_size=5))
    def put_ephemeral(self, scope: str, value: bytes) -> None:
        key = f"/{scope}/~session"

        async def run() -> int:
            if self.session is None:
                self.session = await self.store.session(10)
            await self.session.put(key, value, scope=scope)
            found = await self.store.get(key, scope=scope)
            assert found is not None
            assert found.value == value
            return found.version

        version = self.runner.run(run())
        assert version > self.last_version
        self.last_version = version
        self.model[key] = (value, version)

    @rule()
    def end_session(self) -> None:
        if self.session is not None:
            self.runner.run(self.session.close())
            self.forget_ephemeral()

    @rule()
    def restart(self) -> None:
        self.runner.run(self.store.close())
        self.forget_ephemeral()
        self.connect()

    def forget_ephemeral(self) -> None:
        self.session = None
        for key in [key for key in self.model if key.endswith("/~session")]:
            del self.model[key]

    @rule(scope=SCOPES, name=NAMES)
    def get(self, scope: str, name: str) -> None:
        found = self.runner.run(self.store.get(f"/{scope}/{name}", scope=scope))
        assert found == self.model.get(f"/{scope}/{name}")

    @rule(scope=SCOPES, bound=BOUNDS)
    def ceiling(self, scope: str, bound: str) -> None:
        found = self.runner.run(self.store.ceiling(f"/{scope}/{bound}", scope=scope))
        expected = min(
            (key for key in self.in_scope(scope) if key >= f"/{scope}/{bound}"), default=None
        )
        assert (found.key if found else None) == expected

    @rule(
        scope=SCOPES,
        low=BOUNDS,
        high=BOUNDS,
        limit=st.none() | st.integers(0, 4),
        reverse=st.booleans(),
    )
    def scan(self, scope: str, low: str, high: str, limit: int | None, reverse: bool) -> None:
        start, end = f"/{scope}/{low}", f"/{scope}/{high}"

        async def run() -> list[tuple[str, bytes, int]]:
            rows = self.store.scan(start, end, scope=scope, limit=limit, reverse=reverse)
            return [(row.key, row.value, row.version) async for row in rows]

        keys = sorted((key for key in self.in_scope(scope) if start <= key < end), reverse=reverse)
        assert self.runner.run(run()) == [(key, *self.model[key]) for key in keys[:limit]]

    @rule()
    def fold_the_watch(self) -> None:
        """All that the watch told, folded in up to a last write, gives the model again."""

        async def run() -> None:
            end = await self.store.commit("end", [], [Put("/end/0", b"")])
            self.last_version = end.version
            async with asyncio.timeout(20):
                async for change in self.watch:
                    assert isinstance(change, Change)
                    if change.key == "/end/0":
                        if change.version == end.version:
                            return
                    elif change.value is None:
                        self.watched.pop(change.key, None)
                    else:
                        self.watched[change.key] = (change.value, change.version)

        self.runner.run(run())
        assert self.watched == self.model

    def in_scope(self, scope: str) -> list[str]:
        return [key for key in self.model if key.startswith(f"/{scope}/")]


@pytest.mark.parametrize("kind", list(STORES))
def test_a_store_equals_its_model(kind: str) -> None:
    machine = type(f"{kind.title()}Machine", (StoreMachine,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=30,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
