"""Draws how data flow, as one SVG in each language: `docs/pictures/flow.svg` and `flow.zh.svg`."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

PICTURES = Path(__file__).resolve().parents[1] / "pictures"

WORDS = {
    "en": {
        "title": "From a gradient to an isolated device",
        "device": "on the device, inside the training step",
        "host": "on the host, once a step",
        "others": "who learns of it",
        "limits": "limits of the next step",
        "backward": ("backward pass", "gradient dL/dx"),
        "check": ("check operator", "identity: the gradient", "passes bit for bit"),
        "feature": ("feature value", "max |g|, sum of g²,", "non-finite count"),
        "rule": ("rule", "one per checked place;", "plain Python floats"),
        "verdict": ("verdict", "normal, second level,", "first level"),
        "event": ("event", "80818C00, device,", "rank, step, place"),
        "gate": ("gate", "refuses an update that", "breaks a limit"),
        "optimizer": ("optimizer", "weights and state stay", "as they were, or change"),
        "log": ("ERROR log line", "the vendor's keyword"),
        "file": ("event log", "CloudEvents, evidence"),
        "metrics": ("metrics", "Prometheus, alerts"),
        "handler": ("fault handler", "strikes, replay verdict"),
        "isolator": ("isolator", "takes the device out"),
        "engine": ("engine", "Slurm, Kubernetes, …"),
    },
    "zh": {
        "title": "从一个梯度到隔离一台设备",
        "device": "设备侧：训练的每一步之内",
        "host": "主机侧：每步一次",
        "others": "告警与处理",
        "limits": "下一步的阈值",
        "backward": ("反向传播", "梯度 dL/dx"),
        "check": ("检测算子", "恒等变换，梯度", "逐比特不变"),
        "feature": ("特征值", "max |g|、g² 之和、", "非有限值个数"),
        "rule": ("判断规则", "每个检测点一个", "纯 Python 浮点数"),
        "verdict": ("判断结果", "正常、二级异常、", "一级异常"),
        "event": ("事件", "80818C00、设备、", "rank、步、检测点"),
        "gate": ("更新闸门", "超过阈值的更新", "一律丢弃"),
        "optimizer": ("优化器", "权重与状态", "更新或保持原样"),
        "log": ("ERROR 日志", "与原方案相同的关键字"),
        "file": ("事件文件", "CloudEvents 与现场数据"),
        "metrics": ("监控指标", "Prometheus 告警"),
        "handler": ("故障处理", "异常计数、重放结论"),
        "isolator": ("隔离器", "把设备移出任务"),
        "engine": ("调度系统", "Slurm、Kubernetes 等"),
    },
}


class Box(NamedTuple):
    """A place of the picture: left, top, width, colour of the head line."""

    x: int
    y: int
    width: int = 150
    colour: str = "#1f4e79"


HEIGHT = 64
BOXES = {
    "backward": Box(30, 62),
    "check": Box(215, 62),
    "feature": Box(400, 62),
    "rule": Box(605, 62),
    "verdict": Box(785, 62),
    "event": Box(965, 62, colour="#a61c1c"),
    "gate": Box(400, 196, colour="#a61c1c"),
    "optimizer": Box(215, 196),
    "log": Box(605, 218),
    "file": Box(785, 218),
    "metrics": Box(965, 218),
    "handler": Box(605, 306),
    "isolator": Box(785, 306),
    "engine": Box(965, 306),
}
FRAMES = {"device": (15, 28, 550, 252), "host": (590, 28, 540, 112), "others": (590, 184, 540, 200)}
ARROWS = (
    "M180 94 H207", "M365 94 H392", "M550 94 H597", "M755 94 H777", "M935 94 H957",
    "M680 126 V160 H475 V188", "M400 228 H373", "M1040 126 V176",
    "M755 338 H777", "M935 338 H957",
)  # fmt: skip

_STYLE = (
    "text{font-family:-apple-system,'Segoe UI','Noto Sans','PingFang SC','Microsoft YaHei','Noto Sans CJK SC',"
    "sans-serif;"
    "fill:#222;text-anchor:middle}.h{font-size:15px;font-weight:600}.t{font-size:12px}"
    ".f{font-size:13px;text-anchor:start;fill:#555}.l{font-size:12px;fill:#a61c1c}"
)


def flow(language: str) -> str:
    """The picture in one language."""
    words = WORDS[language]
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1145 400" role="img">',
        f"<title>{escape(str(words['title']))}</title><style>{_STYLE}</style>",
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#444"/></marker></defs>',
        '<rect width="1145" height="400" fill="#fff"/>',
    ]
    for name, (x, y, width, height) in FRAMES.items():
        parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="#f4f6f9" stroke="#c9d1dc"/>'
        )
        parts.append(f'<text class="f" x="{x + 14}" y="{y + 20}">{escape(str(words[name]))}</text>')
    parts += [
        f'<path d="{path}" fill="none" stroke="#444" stroke-width="1.5" marker-end="url(#a)"/>' for path in ARROWS
    ]
    parts.append(f'<text class="l" x="500" y="152">{escape(str(words["limits"]))}</text>')
    for name, box in BOXES.items():
        parts += _box(box, tuple(words[name]))
    return "\n".join([*parts, "</svg>", ""])


def _box(box: Box, lines: tuple[str, ...]) -> list[str]:
    middle = box.x + box.width // 2
    top = box.y + (28 if len(lines) == 2 else 20)
    drawn = [
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{HEIGHT}" rx="6" fill="#fff" '
        f'stroke="{box.colour}"/>',
        f'<text class="h" x="{middle}" y="{top}" style="fill:{box.colour}">{escape(lines[0])}</text>',
    ]
    for number, line in enumerate(lines[1:], 1):
        drawn.append(f'<text class="t" x="{middle}" y="{top + 18 * number}">{escape(line)}</text>')
    return drawn


def drawn() -> dict[str, str]:
    """Each picture by the name of its file."""
    return {"flow.svg" if language == "en" else f"flow.{language}.svg": flow(language) for language in WORDS}


if __name__ == "__main__":
    for name, text in drawn().items():
        (PICTURES / name).write_text(text, encoding="utf-8")
