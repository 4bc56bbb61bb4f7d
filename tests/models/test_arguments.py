"""Arguments as a pipeline hands them over."""

import json

from components.models.arguments import in_order


def test_the_order_in_which_a_pipeline_hands_over_arguments_leaves_no_trace():
    handed_over = {"pool": True, "layers": [{"units": 2, "name": "a"}], "dropout": 0.5}
    in_another_order = {"dropout": 0.5, "layers": [{"name": "a", "units": 2}], "pool": True}
    assert json.dumps(in_order(handed_over)) == json.dumps(in_order(in_another_order))
    assert in_order(handed_over) == handed_over
