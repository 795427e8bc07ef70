"""What the lines of vendors' logs say: samples, variants nobody printed yet, and lines that only look like alarms."""

import json
import math
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd import Level
from asd.exporters.ledger import Ledger
from asd.ingest.alarms import Alarms
from asd.rundir.follow import Line
from tests.asd.handler.scene import Scene
from tests.asd.handler.scene import event as strike

V3_ERROR = (
    "[ERROR] AICPU(25787,aicpu_scheduler):2025-02-25-18:43:29.395.610 [silent_check_v3.cc:250][ComputeL1Error]"
    "[tid:25799]SilentCheckV3 ComputeL1Error:val = [nan], max = [nan], avg=[5.752283e-08], step=[5], c_thresh_l1 = "
    "[1.000000e+06], c_thresh_l2 = [1.000000e+04], beta1 = [9.900000e-01], npu_asd_detect = [2]."
)
V3_INFO = (
    "[INFO] AICPU(26559,aicpu_scheduler):2025-02-25-18:46:51.684.993 [silent_check_v3.cc:240][SilentCheck][tid:26570]"
    "SilentCheckV3 normal case, val=[2.016393e+02], max=[2.016393e+02], avg=[7.349676e+00], step=[4], "
    "c_threshold_l1=[1.000000e+06], c_threshold_l2=[1.000000e+04], beta1=[9.900000e-01], npu_asd_detect=[3]."
)
V2_ERROR = (
    "[ERROR] AICPU(24515,aicpu_scheduler):2024-09-13-14:12:28.956.344 [silent_check_v2.cc:136][ComputeL1Error]"
    "[tid:24528]SilentCheck get L1 Error, input message: val = [nan], pre_val = [0.100089], min_val = [0.089474], "
    "max_val = [0.130423], step = [6],         c_min_steps = [100], c_thresh_l1 = [1000000.000000], c_coeff_l1 = "
    "[100000.000000], c_thresh_l2 = [10000.000000], c_coeff_l2 = [5000.000000] npu_asd_detect = [1]."
)
V2_INFO = (
    "[INFO] AICPU(2249,aicpu_scheduler):2024-09-13-14:18:53.057.632 [silent_check_v2.cc:122][SilentCheck][tid:2258]"
    "val = [0.004220], pre_val = [0.004272], min_val = [0.004189], max_val = [0.004272], step = [4].",
    "[INFO] AICPU(2249,aicpu_scheduler):2024-09-13-14:18:53.057.642 [silent_check_v2.cc:124][SilentCheck][tid:2258]"
    "c_min_steps = [100], c_thresh_l1 = [1000000.000000], c_coeff_l1 = [100000.000000], c_thresh_l2 = [10000.000000], "
    "c_coeff_l2 = [5000.000000], npu_asd_detect = [3]",
)
MS = "[WARNING] DEBUG(2950752,fffee7e591e0,python):2025-08-26-10:46:26.665.782 [mindspore/ccsrc/tools/silent_detect/"
STRIKE = (
    f"{MS}silent_detector.cc:109] SilentDetect] Silent detect strike detected: StrikeRecord{{timestamp: 1756176386, "
    "name: fc1.weight, value: inf, stat: StatData{avg: 6.44326e+12, pre_value: 6.441e+14, count: 6, "
    "none_zero_count: 6}}"
)
OUT = (
    f"{MS}silent_detector.cc:340] DetectStrikeout] Feature value detection strikes out on rank 7, strikes_num: 3, "
    "CheckSum will be enabled globally."
)
DEVICE_LOG = "/x/debug/device-3/device-305322_20250225184310213.log"


@pytest.fixture(autouse=True, scope="module")
def _zone():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def reader():
    return Alarms("node7", clock=lambda: 1_800_000_000.0)


def events(*texts, path="/logs/some.log"):
    alarms = reader()
    lines = [Line(Path(path), 100 * number, text, f"f:{100 * number}") for number, text in enumerate(texts)]
    return [event for line in lines for event in alarms.read(line)]


def event(text, path="/logs/some.log"):
    (found,) = events(text, path=path)
    return found


def utc(*parts):
    return datetime(*parts, tzinfo=timezone.utc).timestamp()


def test_an_error_of_the_third_check_has_its_value_limit_step_device_and_time():
    found = event(V3_ERROR.replace("val = [nan]", "val = [2.5e+01]"), path=DEVICE_LOG)
    assert (found.rule, found.level, found.feature) == ("silent_check_v3", Level.ERROR, "max_square")
    assert (found.value, found.step, found.device, found.rank, found.host) == (25.0, 5, "Ascend:3", -1, "node7")
    assert found.time == pytest.approx(utc(2025, 2, 25, 18, 43, 29, 395610), abs=1e-6)
    assert (found.code, found.run, found.checkpoint) == ("80818C00", "ingest", "")


def test_an_error_of_the_second_check_is_told_apart_from_one_of_the_third():
    found = event(V2_ERROR, path=DEVICE_LOG)
    assert (found.rule, found.level, found.feature, found.step) == ("silent_check_v2", Level.ERROR, "l2", 6)
    assert math.isnan(found.value)


L2 = [
    V3_ERROR.replace("ComputeL1Error", "ComputeL2Error").replace("[ERROR]", "[WARNING]"),
    V3_ERROR.replace("ComputeL1Error", "ComputeL2Warning").replace("[ERROR]", "[WARNING]"),
    V3_ERROR.replace("[ComputeL1Error]", "").replace("ComputeL1Error", "abnormal case").replace("[ERROR]", "[WARNING]"),
    V2_ERROR.replace("ComputeL1Error", "SilentCheck").replace("L1 Error", "L2 Warning").replace("ERROR", "WARNING"),
    V2_ERROR.replace("ComputeL1Error", "SilentCheck").replace("L1 Error", "L2 Error"),
]


@pytest.mark.parametrize("text", L2)
def test_the_second_level_is_a_warning_unless_its_value_is_not_finite(text):
    finite, infinite = (event(text.replace("[nan]", value, 1)) for value in ("[7e5]", "[inf]"))
    assert (finite.level, infinite.level) == (Level.WARNING, Level.ERROR)


VARIANTS = {
    "other version": V3_ERROR.replace("silent_check_v3.cc:250", "silent_check_v5.cc:7").replace("CheckV3", "CheckV5"),
    "no function and no thread": V3_ERROR.replace("[ComputeL1Error][tid:25799]", ""),
    "other spelling": V3_ERROR.replace("c_thresh_l1", "c_threshold_l1").replace("avg", "AVG").replace("val ", "Val "),
    "small letters": V3_ERROR.lower(),
    "payload": V3_ERROR.replace("[nan]", "[nan(0x7fc00)]"),
    "no brackets": V3_ERROR.replace("val = [nan]", "val = nan").replace("step=[5]", "step=5"),
    "more keys": V3_ERROR.replace("max = [nan]", "max = [nan], layer = [12], mode=[train]"),
    "other order": "[ERROR] AICPU(1,a):2025-02-25-18:43:29.395.610 [silent_check_v3.cc:9]SilentCheckV3 L1 Error, beta1="
    "[0.99], step=[5], c_thresh_l1=[1e6], avg=[5.752283e-08], val=[nan]",
    "colours": V3_ERROR.replace("[ERROR]", "\x1b[1;31m[ERROR]\x1b[0m"),
    "kubectl": f"[pod/train-0/main] {V3_ERROR}",
    "containerd": f"2025-02-25T18:43:30.123456789Z stderr F {V3_ERROR}",
    "docker": json.dumps({"log": f"{V3_ERROR}\n", "stream": "stderr", "time": "2025-02-25T18:43:30.1Z"}),
    "syslog": f"Feb 25 18:43:30 node7 aicpu[11]: {V3_ERROR}",
    "grep": f"device-0/device-1_20250225184310213.log:2508:{V3_ERROR}",
    "progress bar": f"  3%|▎ | 3/100 [00:01<00:30]\r{V3_ERROR}",
    "behind something long": f"{'x' * 100_000} {V3_ERROR}",
    "no source": V3_ERROR.replace("[silent_check_v3.cc:250]", ""),
    "no header": V3_ERROR.partition("[silent")[2],
    "warning word": V3_ERROR.replace("[ERROR]", "[ ERROR ]"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_line_is_understood_however_it_is_dressed(name):
    found = event(VARIANTS[name], path=DEVICE_LOG)
    assert (found.level, found.step) == (Level.ERROR, 5)
    assert math.isnan(found.value)
    assert found.rule == ("silent_check_v5" if name == "other version" else "silent_check_v3")
    if name != "no header":
        assert found.time == pytest.approx(utc(2025, 2, 25, 18, 43, 29, 395610), abs=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "[ERROR] GE(1,a):2025-02-25-18:43:29.395.610 [infer.cc:9]SilentCheckV3 infer shape failed, ret = [5].",
        "[ERROR] AICPU(1,a):2025-02-25-18:43:29.395.610 [silent_check_v3.cc:90][Init][tid:1]Get input failed, type=[1]",
        "grep -nr 'silent_check_v[2-9].cc:.*SilentCheck' device-*",
        "SilentDetect initialized with enable: 1, with_checksum: 0, upper_thresh1: 1000000",
        f"{MS}a.cc:1] F] Feature value detection strikes out! Search 'strikes out on rank' in training logs.",
        f"{MS}a.cc:1] F] SilentCheck detects SDC error, which means training may be unstable. Search 'CheckSum detects "
        "MatMul error on rank' in training logs to get abnormal ranks.",
        f"{MS}a.cc:1] F] Global CheckSum result is 0",
        f"{MS}a.cc:1] F] Detect feature value strike, count: 1, number to strikeout: 3",
        f"{MS}a.cc:1] F] Feature value detection works with CheckSum, strikes_num: 2, strikes_window: 1 min",
        f"{MS}a.cc:1] F] CheckSum start, which will degrade performance",
        STRIKE.replace("Silent detect strike detected:", "Strike happened. record is"),
        STRIKE.replace(
            "Silent detect strike detected:",
            "Strike will not be recorded repeatedly during the 5 mins cooling-off period, and the exception info is",
        ),
        "[Info] Rank 3: feature detection detects abnormal results, checksum is on.",
        "[Info] Rank 3: checksum is off",
        "[silent data] name:a, val: nan, pre_val: 0.1, avg: nan, bp time: 4, none_zero_step: 2",
        "event_id=0x80c78008",
        "[klogd.c:242] Node Type=0x60b; Sensor Type=0xd0; event_state=5)",
        "Get event severity fail. (sensor type=0xc6; offset=0)",
        "device fault, nodeName:n1, assertion:Occur, cardID:2, deviceID:0, faultCodes:8C084E00, faultLevelName:"
        "RestartBusiness, alarmRaisedTime:2023-11-21 05:36:53",
        'the keyword is "accuracy sensitivity feature abnormal"',
        "WARN: this may be a device fault, run the checksum test",
        *(f"checksum: device fault, {name}:{'9' * 5000}, deviceID:1" for name in ("logicID", "cardID")),
        *(f'npu_chip_info_error_code{{id="0"}} {value}' for value in ("NaN", "-Inf", "+Inf")),
        V3_INFO,
        *V2_INFO,
        "",
    ],
)
def test_lines_that_only_look_like_alarms_are_none(text):
    assert events(text) == []


def test_our_own_error_line_is_not_read_back():
    assert events(f"[ERROR] ASD(1):2025-08-26-10:46:26.000 {event(V3_ERROR).sentence()}") == []
    assert events(event(V3_ERROR).to_json()) == []


def test_a_strike_has_name_value_and_the_time_that_is_in_it():
    found = event(STRIKE, path="/run/worker_3.log")
    assert (found.rule, found.level, found.checkpoint, found.value) == ("combined", Level.ERROR, "fc1.weight", math.inf)
    assert (found.time, found.step, found.rank, found.device) == (1756176386.0, 6, 3, "unknown")
    assert ("6.44326e+12" in found.reason, "6.441e+14" in found.reason) == (True, True)


@pytest.mark.parametrize("name", ["a, b(1).weight", "名字", "x: y=[3]", "{odd"])
def test_a_finite_strike_is_the_second_level_and_keeps_any_name(name):
    found = event(STRIKE.replace("value: inf", "value: 2.5e+09").replace("fc1.weight", name))
    assert (found.level, found.checkpoint) == (Level.WARNING, name)


def test_a_strike_is_read_in_any_order_and_spelling():
    found = event("StrikeRecord { value=-nan, name = w, Timestamp = 1756176386, stat = StatData{count = 9}, extra: 1 }")
    assert (found.level, found.checkpoint, found.step, found.time) == (Level.ERROR, "w", 9, 1756176386.0)


@pytest.mark.parametrize("when", ["0", "99999999999999", "-5"])
def test_an_impossible_time_in_a_strike_gives_way_to_that_of_the_line(when):
    found = event(STRIKE.replace("1756176386", when))
    assert found.time == pytest.approx(utc(2025, 8, 26, 10, 46, 26, 665782), abs=1e-6)
    found.to_json()


@pytest.mark.parametrize(
    ("text", "rank", "reason"),
    [
        (OUT, 7, "strike-out after 3 strikes"),
        (f"{MS}a.cc:1] DoCheckSum] CheckSum detects MatMul error on rank 12", 12, "checksum: wrong MatMul"),
        (f"{MS}a.cc:1] DoCheckSum] checksum detects matmul error on rank: 12.", 12, "checksum: wrong MatMul"),
    ],
)
def test_a_strike_out_and_a_wrong_checksum_name_the_rank_in_the_line_and_no_other(text, rank, reason):
    found = event(text, path="/run/worker_3.log")
    assert (found.level, found.rank, found.device, found.reason) == (Level.ERROR, rank, "unknown", reason)


def test_the_keyword_of_the_first_generation_is_an_event():
    found = event("[ERROR] GE(12,python):2024-03-01-00:00:00.000.001 [x.cc:1] F] accuracy sensitivity feature abnormal")
    assert (found.rule, found.level, found.time) == ("silent_check_v1", Level.ERROR, utc(2024, 3, 1, 0, 0, 0, 1))


@pytest.mark.parametrize(
    "text",
    [
        "Event id=0x80818c00",
        "event_id:  [0x80818c00]",
        "event_id=0x80818c00",
        "EVENT_ID = 80818C00",
        '{"event_id": "0x80818C00"}',
        "event_id: 2155973632",
        "eventId:0x80818c00;",
        "(Node Type=0x40; Node ID=0; Sensor Type=0xc6; sensor id=1; event_state=0)",
        "sub_node_type=0x0; node_type=0x40; sensor_type=0xC6, event_state=0x0",
        "Event id=0x80818c00 Node Type=0x40; Sensor Type=0xc6; event_state=0)",
    ],
)
def test_the_code_of_the_driver_is_read_in_every_form(text):
    found = event(f"[ERROR] KERNEL(3551,sklogd):2021-10-05-23:07:08.350.235 [klogd.c:242][583733.716915] {text}")
    assert (found.rule, found.code, found.level, found.rank) == ("driver", "80818C00", Level.ERROR, -1)
    assert found.time == pytest.approx(utc(2021, 10, 5, 23, 7, 8, 350235), abs=1e-6)


@pytest.mark.parametrize(("code", "level"), [("80818C05", Level.ERROR), ("80818C06", Level.WARNING)])
def test_the_codes_of_the_stress_test_keep_their_risk(code, level):
    found = event(f"Aug 26 10:46:26 n1 kernel: event_id=0x{code.lower()}, device_id=6, assertion=1")
    time = utc(2026, 8, 26, 10, 46, 26)
    assert (found.code, found.level, found.device, found.time) == (code, level, "Ascend:6", time)


PLUGIN = (
    "device fault, nodeName:k8smaster, assertion:{}, cardID:2, deviceID:{}, faultCodes:{}, faultLevelName:SeparateNPU, "
    "alarmRaisedTime:2023-11-21 05:36:53"
)


def test_a_message_of_the_device_plugin_names_node_and_device():
    found = event(f"kube-system  8s  Warning  Occur  pod/x  {PLUGIN.format('Occur', 0, '8C084E00,80818c00')}")
    assert (found.kind, found.level, found.host, found.device) == ("anomaly", Level.ERROR, "k8smaster", "Ascend:2")
    assert found.time == utc(2023, 11, 21, 5, 36, 53)


def test_two_codes_in_one_message_are_two_events():
    found = events(PLUGIN.format("Occur", 0, "80818C05,80818C00"))
    assert [each.code for each in found] == ["80818C00", "80818C05"]
    assert len({each.id for each in found}) == 2


@pytest.mark.parametrize("head", ["", "9999-12-31-12:00:00.000 ", "2026-02-30 12:00:00 "])
def test_a_line_without_a_time_that_can_be_has_the_present_one(head):
    assert event(f"{head}Event id=0x80818c00").time == 1_800_000_000.0


BITS = 'Event id=0x80818c00|val = [|\r|{|{"log": "|\x00|\x1b[|SilentCheck|StrikeRecord{name: |Node Type=0x40;|特'
PIECES = st.sampled_from([V3_ERROR, V2_ERROR, STRIKE, OUT, PLUGIN, *BITS.split("|")])


@given(st.lists(st.one_of(PIECES, st.text(max_size=20)), max_size=12), st.data())
def test_no_line_whatever_it_holds_is_an_error(pieces, data):
    text = "".join(pieces)
    text = text[data.draw(st.integers(0, len(text))) :]
    for found in events(text):
        assert type(found).from_json(found.to_json()).id == found.id


@pytest.mark.parametrize(
    "text",
    [
        f"Silent detect strike detected: StrikeRecord{{timestamp: 1, name: {'n' * 600}, value: inf}}",
        f"device fault, nodeName:{'n' * 600}, assertion:Occur, cardID:2, deviceID:0, faultCodes:80818C00",
    ],
)
def test_a_name_too_long_for_a_record_is_cut(text):
    found = event(text)
    assert max(len(found.checkpoint), len(found.host)) == 512
    assert type(found).from_json(found.to_json()).id == found.id


@pytest.mark.parametrize(
    "piece",
    [
        *("Node Type=0x40;", "device fault, nodeName:", "StrikeRecord{name: ", "silent_check_v3.cc val=", "a="),
        *("event_id=", "[rank", " ", "silentcheck " + "9" * 50000, "[ERROR] X(1 silentcheck"),
        *(f"sensor {begin}{' ' * 16000}" for begin in ("event_id", "strikes out on rank", "[ERROR]")),
        f"StrikeRecord{{name: a{' ' * 16000}b",
    ],
)
def test_a_line_of_a_megabyte_takes_no_time(piece):
    text = "silentcheck val=" + (piece * (1 + (1 << 20) // len(piece)))[: 1 << 20]
    began = time.process_time()
    events(text)
    assert time.process_time() - began < 1.0  # what backtracks takes seconds to hours


@pytest.mark.parametrize("text", [V3_ERROR, V3_ERROR.partition("[silent")[2]], ids=["time", "no time"])
def test_the_same_line_always_has_the_same_id_and_another_line_or_without_a_time_another_place_another(text):
    read = reader()
    here, there = Line(Path("a"), 0, text, "f:0"), Line(Path("b"), 0, text, "f:7")
    later = Line(Path("a"), 0, text.replace("step=[5]", "step=[6]"), "f:0")
    first, again, moved, other = (read.read(line)[0].id for line in (here, here, there, later))
    assert first == again != other
    assert (moved == first) == (text == V3_ERROR)


HEALTH = """
        NPU ID                         : {npu}
        Chip Count                     : {chips}

        Health Status                  : {health}
        Error Code                     : {codes}
        Error Information              : node type=SoC, sensor type=Check Sensor, event state=check fail
        Chip ID                        : 0
"""
SCRAPE = 'npu_chip_info_error_code{{id="{id}",model_name="910B3",vdie_id="6B5D"}} {value} 1756176386934'
FAULTS = [
    {"fault_type": "CardUnhealthy", "npu_name": f"Ascend910-{npu}", "fault_handling": "SeparateNPU", "fault_code": code}
    for npu, code in ((2, "80E18402"), (5, "80C98000,80818C00"))
]
DEVICES = {"DeviceInfo": {"DeviceList": {"huawei.com/Ascend910-Fault": json.dumps(FAULTS)}}}
CONFIG_MAP = {"data": {"DeviceInfoCfg": json.dumps(DEVICES)}, "metadata": {"name": "mindx-dl-deviceinfo-node9"}}


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (
            (
                HEALTH.format(npu=4, chips=2, health="OK", codes="NA")
                + HEALTH.format(npu=6, chips=1, health="Warning", codes="80818C00")
            ).splitlines(),
            [("node7", "Ascend:6", 1_800_000_000.0)],
        ),
        (
            [SCRAPE.format(id=0, value=0), SCRAPE.format(id=3, value="2.155973632e+09")],
            [("node7", "Ascend:3", 1_800_000_000.0)],
        ),
        ([json.dumps(CONFIG_MAP)], [("node7", "Ascend:5", 1_800_000_000.0)]),
    ],
    ids=["npu-smi", "npu-exporter", "config-map"],
)
def test_states_that_people_have_at_hand_name_the_device(texts, found):
    told = events(*texts)
    assert [(each.host, each.device, each.time) for each in told] == found
    assert {(each.code, each.level, each.rule) for each in told} == {("80818C00", Level.ERROR, "driver")}


def test_of_a_card_with_several_chips_npu_smi_names_the_card_alone_and_the_device_plugin_the_chip():
    assert event(PLUGIN.format("Occur", 1, "80818C00")).device == "Ascend card 2 chip 1"
    texts = HEALTH.format(npu=6, chips=2, health="Warning", codes="80818C00").splitlines()
    assert [each.device for each in events(*texts)] == ["Ascend card 6"]


DRIVER = "2026-08-26T10:46:26+08:00 node7 event_id=0x80818c00 dev_id=6 assertion={}"
OLD_PLUGIN = PLUGIN.replace("k8smaster", "node7").replace("cardID:2", "cardID:6")
NEW_PLUGIN = OLD_PLUGIN.replace("cardID:6, deviceID:{}", "logicID:6{:.0}")
TRAY = HEALTH.format(npu=6, chips=1, health="{}", codes="{}")
MAP = json.dumps({"Ascend910-Fault": json.dumps(FAULTS[1:]).replace("910-5", "910-6")})


@pytest.mark.parametrize(
    ("raised", "over", "told"),
    [
        (DRIVER.format(1), DRIVER.format(0), 1),
        (OLD_PLUGIN.format("Occur", 0, "80818C00"), OLD_PLUGIN.format("Recovery", 0, "80818C00"), 1),
        (json.dumps([NEW_PLUGIN.format("Occur", "", "80818C00")]), NEW_PLUGIN.format("Recover", "", "80818C00"), 1),
        (TRAY.format("Warning", "80818C00"), TRAY.format("OK", "NA"), 0),
        (SCRAPE.format(id=6, value=2155973632), SCRAPE.format(id=6, value=0), 0),
        (MAP, MAP.replace("80818C00", ""), 0),
    ],
    ids=["driver", "plugin", "newest-plugin", "npu-smi", "npu-exporter", "config-map"],
)
def test_an_alarm_of_the_vendor_that_is_over_clears_no_strike_and_releases_nothing(raised, over, told):
    scene, ledger = Scene(), Ledger(clock=lambda: scene.clock.now)
    (alarm,), overs = (events(*text.splitlines()) for text in (raised, over))
    assert (alarm.kind, alarm.device, alarm.recovered_by) == ("anomaly", "Ascend:6", "")
    found = [(each.kind, each.device, each.level, each.recovered_by) for each in overs]
    assert found == [("recovery", "Ascend:6", Level.NORMAL, "vendor")] * told
    for step in (1, 2, 3):
        scene.raises(step, "Ascend:6")
        ledger.add(strike(step, device="Ascend:6", time=scene.clock.now))
    assert scene.after(31.0) == ["isolated"]
    for number, each in enumerate([*scene.published, *[alarm, *overs] * 4]):
        again = replace(each, time=scene.clock.now, key=f"{number}")
        ledger.add(again)
        scene.handler.handle(again)
    shown = ledger.records(scene.clock.now)["node7", "Ascend:6"]
    assert (scene.isolated, shown.state) == (["Ascend:6"], "isolated")
    assert min(scene.record("Ascend:6").strikes, shown.strikes) >= 3
    ledger.add(replace(scene.published[0], kind="recovery", recovered_by="person", time=scene.clock.now))
    assert ("node7", "Ascend:6") not in ledger.records(scene.clock.now)
