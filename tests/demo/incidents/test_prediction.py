from lanewise.demo.incidents import Prediction, came_true


def test_all_must_hold_and_there_must_be_some():
    yes, no = Prediction("", True), Prediction("", False)
    assert came_true([yes, yes])
    assert not came_true([yes, no])
    assert not came_true([])
