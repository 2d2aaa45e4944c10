"""A share of the durability programs; ``python -m tests.durability`` runs all of them."""

from tests.durability import archive, faults, fuzz, kill, writers


def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path):
    report = kill.run(tmp_path, 12)

    assert report.lost == 0
    assert report.acknowledged > 0


def test_a_killed_agent_loses_nothing_it_told_and_no_more_than_the_last_piece_of_a_text(tmp_path):
    report = kill.run_agents(tmp_path, 6)

    assert report.lost == 0
    assert report.acknowledged > 0


def test_damaged_files_open_soon_and_stay_as_they_are(tmp_path):
    report = fuzz.run(tmp_path, 450)

    assert report.changed == 0
    assert report.slowest < 2
    assert report.cut_recovered == report.cut_intact
    assert report.recovered >= 0.99 * report.intact


def test_whatever_call_fails_memory_and_disk_agree(tmp_path):
    report = faults.run(tmp_path, 6)

    assert report.problems > 0
    assert {"open", "write", "sync", "lock", "sync_folder", "unlock"} <= set(report.failed)


def test_four_processes_lose_and_fuse_nothing(tmp_path):
    report = writers.run(tmp_path, 60)

    assert report.lost == 0
    assert report.notices == []


def test_damaged_files_are_exported_and_purged_and_no_other_entry_is_lost(tmp_path):
    report = archive.run(tmp_path, 72)

    assert report.exported == report.files
    assert report.purged >= 0.99 * report.files
    assert report.emptied > 0
    assert (report.lost, report.left) == (0, 0)
