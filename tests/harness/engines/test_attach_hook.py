"""The module that attaches the strict check in each process of a server."""

from swarden.harness.strict.hook import sitecustomize


def test_missing_package_of_the_attachment_is_named_with_the_file_that_imports_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "lacking.py").write_text("\nimport no_such_module")
    monkeypatch.syspath_prepend(tmp_path)

    sitecustomize.attach(sitecustomize, {"attachment": "lacking"})

    assert capsys.readouterr().err == (
        f"swarden: not attached: No module named 'no_such_module' ({tmp_path}/lacking.py:2); "
        "install swarden in the environment of the command\n"
    )
