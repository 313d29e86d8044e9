"""What is typed becomes a space, or one line; `--set` and the options agree."""
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial import presets
from seatrial.errors import BadInput
from seatrial.plan.ask import question
from seatrial.plan.request import NUMBERS, WORDS, Request, integers, number, share, usual_precision

texts = st.text(alphabet="0123456789,.-+eE%xKMBT onf1bzhpigl\n'", max_size=12)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([*NUMBERS, *WORDS]), texts, max_size=4),
       st.one_of(st.none(), texts), st.lists(texts.map("topology.tp={}".format), max_size=1))
def test_any_text_is_a_request_or_one_line(fixed, rampup, changes):
    try:
        Request.read(model="tiny", cluster="jz-a100", fixed={"gbs": "8", **fixed}, rampup=rampup, settings=changes)
    except BadInput as error:
        assert len(str(error).splitlines()) == 1


PATHS = ("model", "cluster", "topology", "batch", "model.layers", "model.heads", "engine", "cluster.device", "cluster.nodes",
         "batch.gbs", "topology.zero", "x.y")  # fmt: skip
VALUES = ("5", "-1", "0", "tiny", "jz-v100", "[]", "{}", "1e9", "nan", "true", "'a'", "")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.builds("{}={}".format, st.sampled_from(PATHS), st.sampled_from(VALUES)), max_size=3))
def test_any_setting_is_a_request_or_one_line(changes):
    try:
        Request.read(model="tiny", cluster="jz-a100", nodes=2, procs_per_node=2, fixed={"gbs": "8"}, settings=changes)
    except BadInput as error:
        assert len(str(error).splitlines()) == 1


@given(texts)
def test_a_number_or_a_share_is_read_or_refused(text):
    for read in (number, share, integers):
        try:
            read("x", text)
        except BadInput as error:
            assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize(("text", "value"), [("300e9", 300e9), ("300B", 300e9), ("1.5T", 1.5e12), ("350m", 3.5e8), ("12", 12)])
def test_counts_are_read_as_people_write_them(text, value):
    assert number("tokens", text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "-3", "0", "nan", "inf", "1e999", "B", "12x"])
def test_what_is_no_count_is_refused(text):
    with pytest.raises(BadInput):
        number("tokens", text)


def test_shares_are_read_as_people_write_them():
    assert share("x", "3%") == pytest.approx(0.03) == share("x", "0.03")


def test_nodes_up_to_a_maximum_are_all_tried():
    asked = Request.read(model="tiny", cluster="jz-a100", nodes=2, nodes_max=5, fixed={"gbs": "8"})
    assert asked.space.nodes == (2, 3, 4, 5) and asked.cluster.nodes == 5
    with pytest.raises(BadInput, match="above --nodes-max"):
        Request.read(model="tiny", cluster="jz-a100", nodes=6, nodes_max=5, fixed={"gbs": "8"})


def test_a_device_or_link_can_be_changed_in_part():
    def asked(*changes):
        return Request.read(model="tiny", cluster="jz-a100", fixed={"gbs": "8"}, settings=changes).cluster

    assert asked("cluster.device.power_w=500").device.power_w == 500
    assert asked("cluster.device.power_w=500").device.units == presets.cluster("jz-a100").device.units
    assert asked("cluster.inter.bandwidth_gb_s=100").inter.name == presets.cluster("jz-a100").inter.name
    assert asked("cluster.device.base=h100-80gb").device.name == presets.cluster("dgx-h100").device.name
    with pytest.raises(BadInput, match="power_w"):
        asked("cluster.device.powr_w=500")


@pytest.mark.parametrize(("cluster", "precision"), [("jz-a100", "bf16"), ("jz-v100", "fp16"), ("fugaku", "fp32")])
def test_precision_is_what_one_trains_in_on_such_a_device(cluster, precision):
    assert usual_precision(presets.cluster(cluster).device) == precision
    assert Request.read(model="tiny", cluster=cluster, fixed={"gbs": "8"}).precision == precision


def test_context_and_groups_are_fixed_by_options_settings_and_files(tmp_path):
    def space(*changes, **fixed):
        return Request.read(model="tiny", cluster="jz-a100", engine="seatrial", fixed={"gbs": "8", **fixed},
                            settings=changes).space

    assert space(cp="2,4", cp_kind="ring,gather").cp_kind == ("ring", "gather")
    assert space("topology.zero_group=8", "topology.weights_group=4").weights_group == (4,)
    assert (space().long, space(cp="auto").long, space(cp="auto").cp) == (16_384, 0, None)
    with pytest.raises(BadInput, match="megatron-deepspeed has no context parallelism"):
        Request.read(model="tiny", cluster="jz-a100", fixed={"gbs": "8", "cp": "auto"})
    with pytest.raises(BadInput, match="--cp_kind 'rings'"):
        space(cp_kind="rings")
    path = tmp_path / "one.toml"
    path.write_text('engine = "seatrial"\nmodel = {base = "tiny"}\ncluster = {base = "jz-a100", nodes = 2}\nbatch = {gbs = 8}\n'
                    "topology = {zero = 3, zero_group = 8, weights_group = 4}\n")
    asked = question(file=path, knobs={"dp": None, "gbs": None, "zero": None}).request.space
    assert (asked.zero, asked.zero_group, asked.weights_group) == ((3,), (8,), (4,))
