"""The settings in Chinese: what each is for, and which values it takes. A test holds them complete."""

from asd.rules import RULES

SETTINGS = {
    "NPU_ASD_ENABLE": (
        "特性开关：`0` 关闭；`1`、`2` 检测、上报，并对一级异常采取动作；`3` 同上，且以 INFO 级别打印每个正常的特征值"
    ),
    "NPU_ASD_UPPER_THRESH": "特征值的绝对数值阈值：一级阈值，二级阈值",
    "NPU_ASD_SIGMA_THRESH": "特征值的跳变（相对数值）阈值：一级阈值，二级阈值，以已见取值范围的宽度为单位",
    "ASD_ON_ANOMALY": (
        "发生一级异常时的动作：`log` 只上报；`skip` 丢弃本步更新后继续训练；`stop` 丢弃本步更新并终止训练"
    ),
    "ASD_PROTECTION": (
        "一键防护：`full` 打开全部检测（文档阈值、自学习范围、权重与优化器状态、"
        "checksum、可疑步确认、重放、ckpt 清单），"
        "其他变量的设置优先；`document` 只启用文档规则 `threshold` 与更新闸门"
    ),
    "ASD_RULE": "判断特征值所用的规则",
    "ASD_RUN_DIR": "一次训练的事件、计数、状态与异常现场数据的存放目录",
    "ASD_RUN": (
        "事件中的任务名，所有 rank 相同；不设置时由各 rank 协商得出：取自 Slurm、MindCluster、Kubernetes 的作业号"
        "与 msrun 调度进程的地址，都没有时由目录、时间与进程号生成"
    ),
    "ASD_NODE": "事件中的机器名；不设置时取主机名；在容器中应设为节点名，即调度系统所用的名字",
    "replay": "`1`：更新被丢弃的那一步会重放一次，以区分硬件错误与软件错误；`document` 或 `log` 下默认为 `0`",
    "confirm": (
        "允许在更新之前重放以确认的可疑步所占比例，例如 `0.01`；设备的瞬时错误会被逐比特修复；"
        "除 `full`、规则 `adaptive` 且不为 `log` 外默认为 `0`"
    ),
    "manifest": (
        "`1`：为 `ModelCheckpoint` 写出的每个 ckpt 文件写一份带哈希的清单，续训时据此选出最后一个完好的 ckpt；"
        "其他文件请调用 `StepMonitor.save_manifest`；`document` 下默认为 `0`"
    ),
    "record": "`1`：记录每一步的特征值，供 `asd tune` 使用",
    "ASD_DEVICE": "本进程所用设备在事件中的编号；不设置时取 MindSpore 的编号",
    "weight_hash": "副本组内每隔多少步比对一次权重；`0` 为不比对，`document` 下默认为 `0`",
    "detectors": (
        "启用哪些检测器，例如 `state+checksum`，可留空；规则为 `adaptive` 时，"
        "`ASD_PROTECTION` 为 `full` 默认两者都启用，为 `document` 默认只启用 `state`；其他规则默认不启用"
    ),
}
VALID = {
    "NPU_ASD_ENABLE": "`0`、`1`、`2`、`3`",
    "NPU_ASD_UPPER_THRESH": "两个整数，均为 3 至 9223372036854775807，且第一个大于第二个，例如 `1000000,10000`",
    "NPU_ASD_SIGMA_THRESH": "两个整数，均为 3 至 9223372036854775807，且第一个大于第二个，例如 `100000,5000`",
    "ASD_ON_ANOMALY": "`log`、`skip`、`stop`",
    "ASD_PROTECTION": "`full`、`document`",
    "ASD_RULE": "、".join(f"`{name}`" for name in RULES),
    "ASD_RUN_DIR": "目录名",
    "ASD_RUN": "不超过 128 个可打印字符的名字",
    "ASD_NODE": "不超过 128 个可打印字符的名字",
    "replay": "`0`、`1`",
    "confirm": "0 到 1",
    "manifest": "`0`、`1`",
    "record": "`0`、`1`",
    "ASD_DEVICE": "设备编号，例如 `3`",
    "weight_hash": "1 至 999999999 的步数，或 `0`",
    "detectors": "`state`、`checksum` 中的任意几个，以 `+` 连接",
}
