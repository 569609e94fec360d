"""A client program that fails, dies or speaks out of turn."""

import sys
import textwrap

import pytest

from compat.program import JobFailed, Program

SCRIPT = """
    import os
    from compat.clients.job import serve

    def die(_bootstrap, _case):
        print("last words", flush=True)
        os._exit(3)

    def echo(bootstrap, case):
        print("a library's greeting")
        return [bootstrap, case["word"]]

    def fail(_bootstrap, _case):
        raise ValueError("no good")

    serve({"die": die, "echo": echo, "fail": fail})
"""


@pytest.fixture
def command() -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(SCRIPT)]


def test_answers_come_in_order_and_what_is_printed_is_not_among_them(command: list[str]) -> None:
    with Program("echo", command) as program:
        assert program.ask("echo", "here:1", word="a") == ["here:1", "a"]
        assert program.ask("echo", "here:1", word="b") == ["here:1", "b"]


def test_a_failed_job_is_an_error_and_the_program_goes_on(command: list[str]) -> None:
    with Program("echo", command) as program:
        with pytest.raises(JobFailed, match="ValueError: no good"):
            program.ask("fail")
        assert program.ask("echo", word="a") == ["", "a"]


def test_a_program_that_died_says_its_last_words_and_is_started_anew(command: list[str]) -> None:
    with Program("echo", command) as program:
        with pytest.raises(JobFailed, match=r"died: .*last words"):
            program.ask("die")
        assert program.ask("echo", word="a") == ["", "a"]


def test_a_program_that_cannot_be_found_is_named() -> None:
    with Program("gone", ["no-such-program"]) as program, pytest.raises(JobFailed, match="no-such"):
        program.ask("echo")
