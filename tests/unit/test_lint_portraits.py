"""Models that a note describes against their stated parameters, their name and the rates of their rows."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes.lint import look_at

SHAPE = "{L} layers, hidden size 4096, 32 heads (8 KV heads), FFN 14336, vocabulary 128256, {N} billion parameters."
SAID = {
    "one line": f"The model has {SHAPE}",
    "wrapped": "We trained the dense configuration ({L} layers,\nwidth 4096, 32 query and 8 key/value heads, "
          "feed-forward 14336,"
               " vocabulary 128256; {N} billion\nparameters) on H100s.",
    "list": "- layers: {L}\n- hidden size: 4096\n- attention heads: 32\n- key/value heads: 8\n- FFN: 14336\n- "
          "vocabulary: 128256\n"
            "- parameters: {N}B",
    "card": "| | |\n|---|---|\n| Layers / hidden | {L} / 4096 |\n| Heads / KV heads | 32 / 8 |\n| FFN | 14336 (SwiGLU) |\n"
            "| Vocabulary | 128,256 |\n| Parameters | {N}B |",
    "de": "Modell: {L} Schichten, Breite 4096, 32 Köpfe, davon 8 für K/V, FFN 14336, Vokabular 128.256, also "
          "{N,} Mrd. Parameter.",
    "fr": "Modèle : {L} couches, dimension 4096, 32 têtes dont 8 têtes KV, FFN 14336, vocabulaire 128 256, soit "
          "{N,} milliards de"
          " paramètres.",
    "es": "Forma: {L} capas, dimensión 4096, FFN 14336, 32 cabezas (8 de clave/valor), vocabulario 128256, es decir {N,} mil"
          " millones de\nparámetros.",
    "it": "Modello: {L} strati, dimensione 4096, 32 teste, 8 teste KV, FFN 14336, vocabolario 128256, {N,} "
          "miliardi di parametri.",
    "pt": "Modelo: {L} camadas, dimensão 4096, 32 cabeças, 8 cabeças KV, FFN 14336, vocabulário 128256, {N,} "
          "bilhões de parâmetros.",
    "pl": "Model: {L} warstw, wymiar 4096, 32 głów, 8 głów KV, FFN 14336, słownik 128256, razem {N,} mld parametrów.",
    "ru": "Модель: {L} слоёв, скрытый размер 4096, 32 голов, 8 KV-голов, FFN 14336, словарь 128256.\nПараметров: {N,} млрд.",
    "zh": "模型：{L} 层，隐藏维度 4096，32 个注意力头，8 个 KV 头，FFN 14336，词表 128256，参数量 {N}B。",
    "ja": "モデル: {L} 層、隠れ次元 4096、ヘッド数 32、KV ヘッド数 8、FFN 14336、語彙 128256、パラメータ数 {N}B。",
    "ko": "모델: {L}층, 은닉 차원 4096, 헤드 32개, KV 헤드 8개, FFN 14336, 어휘 128256, 파라미터 {N}B.",
}  # fmt: skip
RATES = "\n\nH100 (989 TFLOP/s), sequences of 4096, 6N FLOPs a token.\n\n" + table("""
    GPUs  batch  s/step  tokens/s  TFLOP/s/GPU
    32  256  3.713  282413  425.2
    64  256  1.901  551692  415.3
    128  256  0.985  1063978  400.5
""")


def said(how: str, layers: str, count: str) -> str:
    text = SAID[how].replace("{L}", layers).replace("{N,}", count.replace(".", ",")).replace("{N}", count)
    return f"# Heron\n\n{text}{RATES}"


@pytest.mark.parametrize("how", SAID)
def test_the_layers_are_wrong_where_count_and_rates_agree(lint, how: str) -> None:
    assert not lint(said(how, "32", "8.03"))
    assert [(f.code, f.printed, f.proposed) for f in lint(said(how, "40", "8.03"))] == [("label-vs-params", "40", "32")]


@pytest.mark.parametrize("how", SAID)
def test_the_count_is_wrong_where_shape_and_rates_agree(lint, how: str) -> None:
    for wrong in ("13.02", "6.03", "80.3"):
        (found,) = lint(said(how, "32", wrong))
        assert found.code == "label-vs-params" and wrong in found.printed.replace(",", ".")
        assert "8.03" in found.proposed.replace(",", ".")


FAMILY = (("Teal", 24, 2048, 16, "1.31"), ("Smew", 32, 2560, 32, "2.65"), ("Knot", 36, 3072, 24, "4.23"),
          ("Gannet", 32, 4096, 32, "6.65"), ("Scoter", 40, 5120, 40, "12.84"))  # fmt: skip


def _md(rows: list[tuple[str, ...]]) -> str:
    return "# Models\n\n" + table("\n".join("  ".join(row) for row in rows))


def _turned(rows: list[tuple[str, ...]]) -> str:
    head, *rest = (list(line) for line in zip(*rows, strict=True))
    return "# Models\n\n| " + " | ".join(head) + " |\n|" + "---|" * len(head) + "\n" + "".join(
        f"| {' | '.join(line)} |\n" for line in rest)  # fmt: skip


def _wiki(rows: list[tuple[str, ...]]) -> str:
    body = "".join("|-\n| " + " || ".join(row) + "\n" for row in rows[1:])
    return "== Models ==\n\n{| class=\"wikitable\"\n! " + " !! ".join(rows[0]) + "\n" + body + "|}\n"


def _html(rows: list[tuple[str, ...]]) -> str:
    cells = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    return f"<html><body><table>\n{cells[0].replace('td>', 'th>')}\n" + "\n".join(cells[1:]) + "\n</table></body></html>\n"


def _listed(rows: list[tuple[str, ...]]) -> str:
    return "Zoo\n===\n\n.. list-table:: configs\n   :header-rows: 1\n\n" + "".join(
        "   * - " + "\n     - ".join(row) + "\n" for row in rows)  # fmt: skip


FORMS = {"notes.md": _md, "turned.md": _turned, "notes.wiki": _wiki, "notes.html": _html, "notes.rst": _listed}


def _family(tmp_path: Path, name: str, heads: tuple[str, ...], **slips: tuple[int, str]) -> list[object]:
    rows = [list(map(str, model)) for model in FAMILY]
    for model, (place, wrong) in slips.items():
        next(row for row in rows if row[0] == model)[place] = wrong
    path = tmp_path / name
    path.write_text(FORMS[name]([heads, *map(tuple, rows)]) + "\nVocabulary 50304.\n", encoding="utf-8")
    return [f for f in look_at([str(path)])[0] if f.level != "info"]


@pytest.mark.parametrize("heads", [("model", "layers", "hidden", "heads", "params (B)"),
                                   ("Модель", "Слои", "Размерность", "Головы", "Параметры, млрд"),
                                   ("modèle", "couches", "dimension", "têtes", "paramètres (Md)")])  # fmt: skip
@pytest.mark.parametrize("name", FORMS)
def test_of_several_models_one_is_not_counted_as_the_others_are(tmp_path: Path, name: str, heads: tuple[str, ...]) -> None:
    if name == "notes.md":
        heads = tuple(head.replace(" ", " ") for head in heads)
    assert not _family(tmp_path, name, heads)
    for place, wrong, right in ((1, "26", "36"), (2, "2048", "3072"), (4, "42.3", "4.23"), (4, "6.23", "4.23")):
        (found, *more) = _family(tmp_path, name, heads, Knot=(place, wrong))
        assert (found.printed, found.proposed) == (wrong, right) and not more
        line = (tmp_path / name).read_text(encoding="utf-8").splitlines()[found.line - 1]
        assert wrong in line


@pytest.mark.parametrize("text", [
    "Mixtral-like: 32 layers, hidden 4096, FFN 14336, 8 experts, vocabulary 32000, 46.7 billion parameters.",
    "A draft of 4 layers, hidden 4096, FFN 14336, vocabulary 32000 goes with it; the model has 8.03 billion parameters.",
    "28 layers, hidden 3584, 28 heads / 4 kv, vocab 152064, 7.62B",
    "32 layers, hidden 4096, 32 heads, FFN 11008, vocabulary 65024, batches of 4.19 Mio. Token",
    "61 layers, hidden 5120, 18.1B", "40 couches, dimension 4096, 32 têtes, 8,27 milliards de paramètres"])
def test_what_leaves_the_size_open_is_not_doubted(lint, text: str) -> None:
    assert not lint(f"# Notes\n\n{text}\n")


def test_the_rates_of_the_rows_tell_the_width_of_a_name(lint) -> None:
    rows = table("""
        nodes  GPUs  TP x PP x DP  GA  GBS  s/iter  TFLOPS/GPU  tok/s
        64  512  8 x 16 x 4  128  512  42.3  68.9  24584
        128  1024  8 x 16 x 8  128  1024  42.6  69.3  49245
        256  2048  8 x 16 x 16  128  2048  44.0  66.5  95390
    """)
    text = "MI250X, a GPU is a GCD. s = 2048, V = 51200, full recomputation.\n\n### 175B  (L = 96, h = 12288)\n\n" + rows
    assert not [f for f in lint(text) if f.code == "label-vs-params"]
    (found,) = (f for f in lint(text.replace("12288", "10240")) if f.code == "label-vs-params")
    assert (found.line, found.printed, found.proposed) == (3, "10240", "12288")
