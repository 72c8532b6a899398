"""The temporary directory is shared by all users: no link in it is followed, and no file is left there."""

from tests.harness.commands.test_commands import swarden


def test_link_in_the_temporary_directory_is_not_followed(tmp_path):
    temporary, victim = tmp_path / "tmp", tmp_path / "victim"
    temporary.mkdir()
    victim.mkdir()
    (temporary / "swarden-hypothesis").symlink_to(victim)

    run = swarden(
        "fuzz", "--profile", "smoke", "--runs", 24, "--workers", 1, "--seed", 1, cwd=tmp_path, TMPDIR=str(temporary)
    )

    assert run.returncode == 0, run.stderr
    assert list(victim.iterdir()) == []
    assert [path.name for path in temporary.iterdir()] == ["swarden-hypothesis"]
