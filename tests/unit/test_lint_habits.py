"""Habits of messy notes that are no slips, and slips that such notes show all the same: batches that nobody states, counts in
one cell, rows that are quoted again, columns of words."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes.lint import Finding, look_at


@pytest.fixture
def lint(tmp_path: Path):
    def look(text: str) -> list[Finding]:
        path = tmp_path / "notes.md"
        path.write_text(text, encoding="utf-8")
        return [finding for finding in look_at([str(path)])[0] if finding.level != "info"]

    return look


def said(found: list[Finding]) -> list[tuple[int | None, str | None, str | None]]:
    return [(f.line, f.column, f.proposed) for f in found]


@pytest.mark.parametrize("heading", ["nodes x GPUs", "Knoten × GPUs"])
def test_nodes_times_gpus_are_all_devices(lint, heading: str):
    note = f"| {heading} | GBS | seq | s/step | tok/s/GPU |\n|---|---|---|---|---|\n"
    rows = [(1, 4, 2.10), (2, 4, 2.16), (4, 4, 2.25), (6, 8, 2.31)]
    for nodes, each, seconds in rows:
        note += f"| {nodes} x {each} | {nodes * each * 8} | 2048 | {seconds:.2f} | {8 * 2048 / seconds:.0f} |\n"
    assert lint(note) == []
    assert said(lint(note.replace("| 128 |", "| 182 |"))) == [(5, "GBS", "128")]


def test_a_way_of_writing_that_several_rows_have_is_no_cell_that_strayed(lint):
    note = "32 layers.\n\n" + table("""
        TP  PP  DP  layers per stage  tokens/s/GPU  mem (GiB)
        4  2  2  16, 16  911  60.1
        2  4  2  8 each  955  64.2
        4  4  1  8 each  903  44.8
        2  8  1  4 each  870  41.0
    """)
    assert lint(note) == []


def test_a_row_that_is_quoted_in_a_smaller_table_is_not_pasted(lint):
    first = "## First\n\n" + table("""
        nodes  GPUs  GBS  s/it  tokens/s
        1  8  64  9.412  27852
        2  16  128  15.731  33327
        4  32  256  16.022  65450
    """)
    again = "\n## Later\n\n" + table("""
        job  s/it  tokens/s
        1 node  9.412  27852
        2 nodes, pinned  9.633  54426
        4 nodes, pinned  9.871  106228
    """)
    assert lint("Sequence length 4096.\n\n" + first + again) == []


def test_bytes_beside_bytes_a_second_are_none_of_a_device(lint):
    note = "A100 40 GB.\n\n| what | GB | GB/s | s |\n|---|---|---|---|\n| 7B | 98 | 4.0 | 24 |\n| 30B | 420 | 20.0 | 21 |\n"
    assert lint(note) == []


WEAK = "{}\n\n" + table("""
    job  nodes  s/step  tok/s/GPU
    all  8  4.91  1668
    without one  7  4.42  1853
    half  4  4.20  1950
    again  8  4.36  1879
""")


def test_a_batch_that_nobody_states_grows_with_the_devices(lint):
    note = WEAK.format("Llama, 4096 tokens, the same batch per GPU.")
    assert lint(note) == []
    (found,) = lint(note.replace("1853", "8153"))
    assert (found.line, found.level) == (6, "error")


def test_a_batch_that_nobody_states_is_one_of_tokens(lint):
    note = "256k tokens per step.\n\n" + table("""
        kind  seq  s/step  tokens/s
        a  8192  14.62  17930
        b  8192  13.11  19996
        a  16384  17.05  15375
        b  16384  16.40  15985
        a  32768  24.90  10528
    """)
    assert lint(note) == []
    assert said(lint(note.replace("13.11", "31.11"))) == [(6, "s/step", "13.11")]


def test_devices_follow_from_batches_where_nobody_counts_them(lint):
    note = "Sequences of 2048, tokens/s of one chip.\n\n" + table("""
        variant  per chip  accum  global  ms  tokens/s/chip
        a  2  4  64  3310  4950
        b  4  2  64  3100  5286
        c  8  2  128  5990  5415
        d  4  2  64  2890  5669
    """)
    assert lint(note) == []
    assert said(lint(note.replace("2890", "8290"))) == [(8, "ms", "2890")]


def test_examples_and_an_effective_batch_in_other_words(lint):
    note = "Lote efectivo de 64, secuencias de 1024.\n\n" + table("""
        tarjeta  lote  acumulación  s/paso  ejemplos/s
        T4  2  32  20,10  3,18
        L4  4  16  10,44  6,13
        A10  8  8  6,12  10,46
        A40  16  4  4,05  15,80
    """)
    assert lint(note) == []
    assert said(lint(note.replace("6,12", "6,92"))) == [(7, "s/paso", "6,12")]


def test_what_few_rows_miss_by_a_little_is_a_mean(lint):
    note = "Samples/s over the whole job.\n\n" + table("""
        GPUs  GBS  s/it  samples/s
        8  128  34.11  3.8
        16  256  34.52  7.3
        32  512  35.70  14.2
        64  1024  37.18  27.5
    """)
    assert lint(note) == []


def test_a_setting_in_words_may_make_a_row_slower(lint):
    note = "One node, 2048 positions, 64 samples per step.\n\n" + table("""
        Setting  s/step  tokens/s  GiB
        bf16, flash  9.30  14094  38.2
        bf16, math  13.05  10044  55.7
        fp16, flash  9.26  14155  38.3
        bf16, flash, fused  9.12  14372  38.2
    """)
    assert lint(note) == []


def test_decoding_follows_a_batch_in_its_own_way(lint):
    note = table("""
        batch size  ms/token  tokens/s  memory (GiB)
        1  11.2  89  18.4
        8  13.1  611  22.1
        32  19.0  1684  34.9
        64  29.7  2155  51.9
    """)
    assert lint(note) == []


def test_a_plan_may_have_a_date(lint):
    note = "| date | TP | GBS | s/it | status |\n|---|---|---|---|---|\n| 2025-02-03 | 2 | 64 | 4.1 | ok |\n"
    assert lint(note + "| 2025-02-10 | 4 | 64 | | planned |\n") == []
    assert [f.code for f in lint(note + "| 2025-02-10 | 4 | 64 | | ok |\n")] == ["dated-but-empty"]


def test_the_batch_of_another_text_is_not_held_against_a_table(lint):
    first = "512 sequences per step of 2048 tokens.\n\n" + table("""
        job  s/it  tokens/s
        a  8.30  126334
        b  8.11  129294
    """)
    other = "\nAn older one.\n\n" + table("""
        job  s/it  tokens/s
        c  9.30  28188
        d  9.66  54275
    """)
    assert lint(first + other) == []


def test_a_whole_number_does_not_get_a_zero_that_nobody_typed(lint):
    note = "2048 tokens, 256 samples per step.\n\n" + table("""
        network  GPUs  s/step  tokens/s/GPU
        a  8  19.22  3410
        b  16  11.27  2907
        c  16  15.35  2135
        d  16  3.738  877
    """)
    assert said(lint(note)) == [(8, "s/step", "37.38")]


def test_micro_batches_as_the_text_names_their_column(lint):
    note = "256 sequences per step. `q` = micro batches per step and pipeline.\n\n" + table("""
        GPUs  TP  PP  DP  mbs  q  s/step
        32  4  2  4  1  64  20.1
        32  2  4  4  1  64  19.4
        32  2  2  8  1  32  18.8
        32  2  2  8  2  16  18.1
        32  4  4  2  1  128  21.3
    """)
    assert lint(note) == []
    assert said(lint(note.replace("| 2 | 16 |", "| 2 | 64 |"))) == [(8, "q", "16")]


def test_a_batch_that_grows_with_the_micro_batch(lint):
    note = "Without accumulation, one node.\n\n" + table("""
        micro batch  ms/step  samples/s
        1  402  19.9
        2  731  21.9
        4  1388  23.1
        8  2690  23.8
    """)
    assert lint(note) == []
    assert [(f.line, f.column) for f in lint(note.replace("23.1", "11.5"))] == [(7, "samples/s")]


def test_two_rows_of_three_prove_a_definition(lint):
    note = "48 samples per step.\n\n" + table("""
        kind  s/step  samples/s
        main  1.987  24.28
        PR  1.861  25.66
        other  1.902  25.34
    """)
    assert lint(note) == []
    assert said(lint(note.replace("1.902", "1902"))) == [(7, "s/step", "1.902")]


CHANGED = "Sequence length is 2048 (Mixer: 4096).\n\n" + table("""
    model  GPUs  GBS  s/step  tokens/s  gain
    Base 3B  16  128  5.24 → 4.71  50.0k → 55.7k  1.11x
    Base 7B  32  256  9.83 → 8.97  53.3k → 58.4k  1.10x
    Base 13B  32  128  8.66 → 8.10  30.3k → 32.4k  1.07x
    Mixer 7B  32  128  10.11 → 9.22  51.9k → 56.9k  1.10x
""")


def test_cells_with_a_figure_before_a_change_and_after_it(lint):
    assert lint(CHANGED) == []
    assert said(lint(CHANGED.replace("9.83 → 8.97", "9.83 → 89.7"))) == [(6, "s/step", "9.83 → 8.97")]
    assert said(lint(CHANGED.replace("1.07x", "1.27x"))) == [(7, "gain", "1.07")]


def test_releases_as_headings_are_of_what_the_text_says(lint):
    note = "Before and after in tokens/s per GPU.\n\n" + table("""
        recipe  GPUs  v1.3  v1.4  gain
        a-8b  8  6,911  7,533  9 %
        b-8b  8  7,004  7,494  7 %
        c-8b  16  6,544  7,264  11 %
        d-8b  16  6,402  6,850  7 %
        e-8b  16  6,101  6,406  5 %
    """)
    assert lint(note) == []
    assert said(lint(note.replace("11 %", "31 %"))) == [(7, "gain", "11 %")]


def test_a_rate_that_the_text_gives_per_node(lint):
    note = "4096 tokens. Cards come in nodes of eight; **tokens/s is per node** here, TFLOPs per card.\n\n" + table("""
        setup  cards  tokens/s  TFLOPs
        plain  8  38,402  194.2
        graphs  8  41,484  209.8
        graphs, two nodes  16  40,857  206.6
        graphs, four nodes  32  39,490  199.7
    """)
    assert lint(note) == []
    (found,) = lint(note.replace("40,857", "5,107"))
    assert (found.line, found.column, found.level) == (7, "tokens/s", "error")


def test_the_side_of_a_shape_that_a_slip_explains(lint):
    note = "| property | value |\n|---|---|\n| layers | 32 |\n| hidden size | 4096 |\n| FFN size | 11008 |\n"
    note += "| heads (KV heads) | 32 (32) |\n| vocabulary | 32,000 |\n| parameters | 6.74B |\n"
    assert lint(note) == []
    assert said(lint(note.replace("11008", "110088"))) == [(5, "ffn", "11008")]


def test_the_row_that_a_total_of_the_text_blames(lint):
    note = table("""
        stage  GPU hours  cost
        one  4,210  5,052
        two  36,950  44,340
        three  9,560  11,472
    """)
    total = "\nIn all 50,720 GPU hours and $60,864.\n"
    assert lint(note + total) == []
    assert said(lint(note.replace("36,950", "73,900") + total)) == [(4, "GPU hours", "36,950")]


def test_a_share_of_another_devices_peak_in_a_table_that_is_turned_round(lint):
    note = "8192 tokens, Llama-3 8B.\n\n" + table("""
        what  H100, small  H100, large  H100, huge  A100
        GPUs  256  512  1024  256
        global batch  512  1024  1024  512
        s/step  2.59  2.68  1.48  7.98
        MFU  39.1 %  37.8 %  34.2 %  40.2 %
    """)
    assert lint(note) == []
    assert [f.line for f in lint(note.replace("40.2 %", "12.7 %"))] == [8]


def test_what_ends_before_it_begins(lint):
    note = table("""
        stage  GPUs  GBS  s/it  from / to
        1  64  256  4.10  2025-01-07 to 2025-01-09
        2  64  512  8.15  2025-01-10 to 2025-01-17
        3  64  512  8.21  2025-01-19 to 2025-01-23
    """)
    assert lint(note) == []
    (found,) = lint(note.replace("to 2025-01-23", "to 2024-01-23"))
    assert (found.line, found.proposed) == (5, "2025-01-19 to 2025-01-23")


def test_thousands_that_lost_a_digit_as_batch_and_time_tell(lint):
    note = "Longueur de séquence 4096.\n\n" + table("""
        GPU  lot global  s/pas  jetons/s
        16  256  6,08  172 463
        32  256  3,07  341 556
        64  256  1,56  672 164
        128  256  0,82  1 278 751
    """)
    assert lint(note) == []
    assert said(lint(note.replace("1 278 751", "1 278 75"))) == [(8, "jetons/s", "1 278 751")]


def test_memory_of_three_rows_whose_point_moved(lint):
    note = table("""
        mode  batch per GPU  ms/step  GiB per GPU
        none  1  511  61.2
        selective  2  940  66.1
        full  8  4652  58.4
    """)
    assert lint(note) == []
    assert said(lint(note.replace("61.2", "6.12"))) == [(3, "GiB per GPU", "61.2")]


def test_a_run_that_failed_has_no_rate_of_another(lint):
    note = table("""
        id  gpus  gbs  seq  sec_per_step  tokens_per_s  status
        a  16  64  8192  4.684  111932  ok
        b  16  64  8192  4.526  115840  ok
        c  16  64  8192  -  -  oom
        d  32  128  8192  4.609  227508  ok
    """)
    assert lint(note) == []
    (found,) = lint(note.replace("| - | - | oom", "| - | 227508 | oom"))
    assert found.column == "tokens_per_s" and "line 6" in found.message


def test_bytes_over_bytes_a_second_are_the_time(lint):
    note = "| what | GB | GB/s | s |\n|---|---|---|---|\n| 7B | 98 | 4.0 | 24.5 |\n| 13B | 182 | 20.0 | 9.1 |\n"
    note += "| 30B | 420 | 40.0 | 10.5 |\n"
    assert lint(note) == []
    assert [f.line for f in lint(note.replace("| 9.1 |", "| 0.15 |"))] == [4]


@pytest.mark.parametrize(("share", "proposed"), [("20", "2.0"), ("2.1", None), ("21", "2.1"), ("8", "2")])
def test_a_sentence_that_compares_two_rows(lint, share: str, proposed: str | None):
    note = table("""
        framework  s/step  tokens/s  TFLOPs
        Alpha-LM  17.84  29388  144.1
        Beta ZeRO  21.10  24848  122.0
        our fork  17.48  29994  147.0
    """)
    found = lint(f"{note}\nHere our fork beats Alpha-LM by {share} %.\n")
    assert [f.proposed for f in found] == ([proposed] if proposed else [])


def test_experts_that_are_shared_count(lint):
    note = "Shape: 24 layers, hidden 2048, 32 experts with inner size 1536 of which four are used and one shared; "
    note += "{} in total and 1.80B active, vocabulary 64,000.\n"
    assert lint(note.format("8.1B")) == []
    assert [f.proposed for f in lint(note.format("81B"))] == ["8.1B"]


def test_two_figures_of_another_row_say_more_than_exchanged_digits(lint):
    note = "64 GPUs, 4096 tokens, 512 sequences per step, 32B.\n\n" + table("""
        TP  PP  DP  mbs  time/step (s)  tok/s/GPU  TFLOPs
        4  2  8  1  55.06  595  125
        4  4  4  1  51.29  639  134
        2  4  8  1  49.81  658  138
        8  1  8  1  66.95  489  103
        8  2  4  2  60.64  540  113
        2  8  4  1  57.53  570  120
    """)
    assert lint(note) == []
    (found,) = lint(note.replace("57.53 | 570", "66.95 | 489"))
    assert found.line == 10 and "line 8" in found.message


def test_a_column_that_is_the_same_in_all_rows_changed_places_with_none(lint):
    note = "`q` is the number of micro-batches. 64 GPUs.\n\n" + table("""
        DP  TP  PP  MBS  q  GBS  s/step  tokens/s
        4  4  4  1  32  128  4.12  63627
        2  4  8  1  64  128  4.22  62119
        1  4  16  1  128  128  4.23  61972
        4  4  4  1  64  256  7.93  66115
        2  4  8  1  128  256  8.01  65454
    """)
    note = "Sequence 2048.\n\n" + note
    assert lint(note) == []
    assert [f.column for f in lint(note.replace("| 64 | 128 | 4.22", "| 32 | 128 | 4.22"))] != ["DP"]


def test_cards_by_their_name_and_how_many_of_them(lint):
    note = table("""
        T4s  bs  ga  eff. bs  s/step  ex/s
        1x  8  4  32  0.470  68.1
        1x  16  2  32  0.434  73.7
        2x  8  2  32  0.241  132.8
        2x  16  2  64  0.453  141.3
        2x  16  3  96  0.683  140.6
    """)
    assert lint(note) == []
    assert said(lint(note.replace("| 2 | 64 |", "| 2 | 46 |"))) == [(6, "eff. bs", "64")]


def test_a_row_that_never_ran_may_have_another_batch(lint):
    note = "One node of 8 x H100, seq_len 8192. The batch column is sequences per GPU and micro step.\n\n" + table("""
        recipe  params  batch  grad_acc  peak_GiB  tok/s/GPU
        a_3b  3.21B  1  4  39.4  17,184
        b_8b  8.03B  1  4  66.2  8,165
        c_14b  14.77B  1  4  44.6  3,650
        d_1b  1.24B  2  2  41.8  42,567
        e_32b  32.76B  1  2  OOM  -
    """)
    assert lint(note) == []


def test_of_several_cards_in_one_thread_the_largest_counts(lint):
    note = "2x RTX 3090, 24 GB each.\n\n4x A6000 (48 GB), block size 1024, 480 sequences per update:\n\n" + table("""
        cards  bs_per_card  s/iter  GB
        1  8  34.73  31.7
        2  8  17.67  31.7
        4  8  9.26  31.7
    """)
    assert lint(note) == []


def test_a_mesh_under_the_names_of_its_axes(lint):
    note = table("""
        slice  chips  fsdp_×_tensor  s/step
        a  256  64_×_4  13.51
        b  512  128_×_4  13.91
        c  128  128_×_1  15.92
        d  256  256_×_1  15.84
    """).replace("_", " ")
    assert lint(note) == []
    assert said(lint(note.replace("128 × 4", "128 × 8"))) == [(4, "fsdp × tensor", "128 × 4")]


def test_threads_of_the_ranks_of_a_node_are_its_cores(lint):
    note = "2 x 48 cores a node.\n\n" + table("""
        ranks/node  threads/rank  cores_used/node  s/step
        2  48  96  0.266
        4  24  96  0.258
        8  12  96  0.250
        2  40  80  0.290
    """).replace("_", " ")
    assert lint(note) == []
    assert said(lint(note.replace("| 8 | 12 |", "| 8 | 24 |"))) == [(7, "threads/rank", "12")]
