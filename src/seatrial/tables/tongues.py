"""Words of tables in other languages, as the English ones that names are kept in.

    in_english("Temps/itération (s)")          time/iteration (s)
    in_english("séquences de 4096 jetons")     sequences of 4096 tokens
    in_english("a lot of time")                a lot of time: no word here is foreign beyond doubt
    in_english("系列長 2048")                  sequence length 2048
"""
from __future__ import annotations

import functools
import re
import unicodedata

_WORDS = """
time: suresi, temps, tiempo, tempo, zeit, czas, время, tijd, sure, czasu, tid, времени
duration: duree, dauer, durata, duracion, trvani, длительность
iteration: iteracion, iterazione, iteracao
step: schritt, paso, passo, etape, krok, шаг, шага, stap, adim, kroku, pasu, steg, stappe, шаге
steps: schritte, pasos, passi, etapes, kroki, шаги, шагов, stappen, krokow, adimlar
seconds: secondes, segundos, secondi, sekunden, sekundy, секунд, secondi, sekund, секунды
second: seconde, segundo, secondo, sekunde, sekundu, секунду, секунда, saniye
nodes: noeuds, nodos, knoten, nodi, wezly, узлы, узлов, knooppunten, noder, uzly, dugum, wezlow, узлах, serwery
nodes: serveurs, servidores
node: noeud, nodo, wezel, узел, узла, uzel, knooppunt, nod, serwer, serveur, servidor
devices: dispositivos, geraete, gerate, cartes, tarjetas, karten, rechenkarten, urzadzenia, устройства, устройств
devices: karty, kart, schede, placas, kaarten, kartlar, карты, карт, ускорители, ускорителеи
device: dispositivo, geraet, gerat, carte, tarjeta, karte, urzadzenie, karta, scheda, placa, kaart, карту, карта
device: карте, устроиство, ускоритель, stuk
memory: memoire, memoria, speicher, speicherbedarf, speicherverbrauch, pamiec, память, памяти, geheugen, bellek
memory: pamet, pamieci, pameti, minne
tokens: jetons, jeton, fichas, tokeny, tokenow, токены, токенов, tokenu
samples: echantillons, muestras, beispiele, proben, campioni, amostras, probki, примеров, образцов
samples: ejemplos, exemplos, exemples, esempi, voorbeelden, przyklady, przykladow
layers: vrstvach, шари, шарів, katman, warstwami, vrstvami
layers: couches, capas, schichten, strati, camadas, lagen, warstwy, warstw, слои, слоев, слоя, vrstvy, vrstev
heads: hlav, hlavy, glow, huvuden, koppen, basligi, aufmerksamkeitskopfe, aufmerksamkeitskopfen, aufmerksamkeitskoepfe
heads: tetes, cabezas, koepfe, kopfe, cabecas, teste, glowice, glowic, голов, головы
model: modele, modelo, modell, modello, модель, modelu, модели
size: taille, tamano, groesse, grosse, dimensione, tamanho, modellgrosse, modellgroesse, размер, grootte
batch: lots, lote, lotto, stapel, батч, пакет, partia, partii, партия, батча
micro: mikro, микро
stages: stufen, stadi, etapas, etages, stadia, этапы, ступени
replicas: replikate, repliken, repliques, repliche, реплики, реплик
optimizer: optimierer, optimiseur, optimizador, ottimizzatore
processes: prozesse, processus, procesos, processi, processos, процессы, процессов
total: gesamt, insgesamt, totale, totaal
hidden: cachee, oculta, oculto, verborgene, versteckte, nascosta, ukryty, ukryta, скрытыи, скрытая, ukryte, ukrytych
step time: schrittdauer, iterationszeit, iterationsdauer
batch size: batchgroesse, batchgrosse, stapelgroesse, stapelgrosse, losgrosse, losgroesse
micro batch size: мікробатч, mikrodavka, mikrodavky, mikrowsad, microlots, micropartida
batch: wsad, davka, davku
micro batch size: микробатч, микробатча, mikrobatch, microlot, microlote, microbatch, mikrobatchgrosse, mikrobatchgroesse
global batch size: globalbatch, globalbatchgrosse, globalbatchgroesse, gesamtbatch, gesamtbatchgrosse, gesamtbatchgroesse
global: globale, globaler, globales, globalen, глобальныи, globalny, globalna, globalne, globalni, глобальная, глобального
effective: efectivo, efectiva, effectif, effettivo, effektiv, effektive, effektiver, efetivo, эффективныи, effectief
sequence: secuencia, sequenz, sequenza, sequencia, sekwencji, sekwencja, последовательности, sekvence, sekvens, sequentie
sequences: послідовностеи, sequenze, reeksen, dizi
sequences: secuencias, sequenzen, sekwencje, sequencias, sequenze, sekvenser, sekvenci, sequenties, последовательностеи
context: contexto, contexte, kontext, contesto, kontekst, контекст, контекста, контексте, baglam
parallelism: paralelismo, parallelisme, parallelismus, parallelitat, parallelitaet, parallelismo, параллелизм, параллелизма
parallelism: paralelizm, paralelismus, parallellism, паралелізм, parallellisme
tensor parallel: tensorparallelitat, tensorparallelitaet, tensorparallelismus, tensorparallellism, tensorparallel
pipeline parallel: pipelineparallelitat, pipelineparallelitaet, pipelineparallelismus
data parallel: datenparallelitat, datenparallelitaet, datenparallelismus
context parallel: kontextparallelitat, kontextparallelitaet
expert parallel: expertenparallelitat, expertparallellism
tensor: tenseur, tenseurs, tensores, tensoriale, tensorial, tensoren, тензорныи, тензорного, tensorowy, tensorovy
pipeline: конвеиер, конвеиера, конвеиерныи, potok, potoku
everywhere: везде, uberall, partout, overal, vsude, wszedzie, overallt
depth: tiefe, profondeur, profundidad, profundidade, profondita, djup, diepte, глубина
width: ancho, ancha, breed, bredd, modellbreite, largeur, siroka, ширину, шириной
width: breite, largeur, anchura, larghezza, szerokosc, ширина, breedte, largura
dimension: размерность, размерности, wymiar
sequence length: sequenzlange, sequenzlaenge, kontextlange, kontextlaenge
length: longueur, longitud, laenge, lange, lunghezza, comprimento, dlugosc, длина, dlugosci, delka, lengte, longueurs, длины
recompute: recalcul, recalculo, neuberechnung, ricalcolo
vocabulary: vocabolario, slovnik, словник, sozluk, ordforrad, woordenschat, словаря, словарем
vocabulary: vokabular, vocabulaire, vocabulario, slownik, словарь
throughput: debit, rendimiento, durchsatz, tokendurchsatz, vazao, desempenho, przepustowosc, doorvoer
throughput: производительность, przepustowosci, propustnost, скорость
parameters: parametros, parametres, parametri, parametrow, параметров, параметры
hidden size: dimensao
number: anzahl, nombre, numero, liczba, число, количество, aantal, liczby, pocet, числа
number: cantidad, quantite, quantita, quantidade, ilosc
GB: Go
GiB: Gio
MB: Mo
MiB: Mio
per node: je knoten, pro knoten, par noeud, por nodo
peak: spitze, pic, pico, пик, piek
each: elk, ieder, каждом, kazdym, kazdem, vardera, кожному, jeweils, chacun, chacune, cada
efficiency: effizienz, efficacite, eficiencia, efficienza, wydajnosc, efektywnosc, эффективность, efficientie, verimlilik
days: jours, dias, tage, giorni, dni, днеи, дни
accumulation: накопичення, накопл, accumulo, accumuler, accumulant, akkumulieren, acumulando, birikim
accumulation: acumulacion, acumulacao, akkumulation, akumulacja
accumulation: akumulacji, akumulace, accumulazione, accumulatie, ackumulering, накопление, накопления
percent: prozent, pourcentage, porcentaje, percentuale, procent
hours: heures, horas, stunden, godziny, godzin, часы, часов, uren
node hours: knotenstunden, knoten stunden, heures noeud, heures noeuds, horas nodo, ore nodo, узлочасы, узло часы
gpu hours: heures gpu, horas gpu, ore gpu
"""
_WEAK = """
per: par, por, pro, je, na, на
of: de, du, des, von, del
batch: lot
without: ohne, sans, sem, senza, bez, без, utan, zonder, geen, keine
with: avec, mit, con
step: pas
the: le, la, les, el, los, der, die, das
nodes: nos
s: seg, sek, с, сек
ms: мс
GB: гб
"""
"""Words that English has too, or that are too short to prove a language: they are read only beside one of the others."""
_SIGNS = """
per node: 1ノードあたり, 1ノード当たり, ノードあたり, ノード当たり, ノードごと, 每个节点, 每节点, 单节点, 노드당, 노드 당
per GPU: GPUあたり, GPU当たり, GPU毎, GPUごと, GPU 당, GPU당, 每GPU, 每 GPU, 单GPU, 单卡, 每卡, 每张卡, カードあたり
nodes: ノード数, ノード, 节点数, 节点, 節点數
GPUs: GPU数, GPU 数, GPU枚数, GPU卡数, 卡数, GPU數
servers: 台数, 台
GPUs: GPU台数
processes: プロセス数, プロセス, 进程数, 进程, 프로세스 수
throughput per GPU: 单卡吞吐量, 单卡吞吐, 每卡吞吐
global batch size: グローバルバッチサイズ, グローバルバッチ, 全局批大小, 全局批次大小, 全局批量大小, 全局批次, 全局批量, 全局批
micro batches: マイクロバッチ数, 微批数, 微批次数, 마이크로 배치 수
micro batch size: マイクロバッチサイズ, マイクロバッチ, 微批大小, 微批次大小, 微批量大小, 微批次, 微批量, 微批
batch size: バッチサイズ, バッチ, 批大小, 批次大小, 批量大小, 批次, 批量
step time: 1ステップ時間, ステップ時間, イテレーション時間, 反復時間, 1ステップの時間,
    单步耗时, 单步时间, 每步耗时, 每步时间, 步耗时, 步时间, 迭代时间, 迭代耗时, 每轮耗时
throughput: スループット, 吞吐量, 吞吐
tokens: トークン数, トークン, 令牌, 词元
samples: サンプル数, サンプル, 样本数, 样本
memory: メモリ使用量, メモリ, 显存占用, 峰值显存, 显存, 内存
sequence length: シーケンス長, 系列長, 文脈長, コンテキスト長, 序列长度, 上下文长度, 序列长, 上下文, 문맥
hidden size: 隠れ次元, 隠れ層, 隠れサイズ, 隠れ, 隐藏维度, 隐藏层维度, 隐层维度, 隐藏大小, 隐藏维, 隐层维
layers: レイヤー数, レイヤ数, 層数, 层数, 层, 層
heads: ヘッド数, ヘッド, 注意力头数, 头数, 注意力头, 头
vocabulary: 語彙数, 語彙, 词表大小, 词表, 어휘 크기, 어휘 수, 어휘, 단어장
model: モデル, 模型
size: サイズ, 参数量, パラメータ数
parameters: パラメータ, 参数
groups: グループ, 组
gradient accumulation: 勾配累積, 勾配蓄積, 梯度累积步数, 梯度累积, 累积步数, 그래디언트 누적, 그레이디언트 누적, 누적
fixed at: 固定为, 固定為, 固定
accumulation: 蓄積, 累積, 累积
iteration: 反復, イテレーション, 迭代, 반복
tensor parallel: 张量并行, テンソル並列, 텐서 병렬
pipeline parallel: 流水线并行, パイプライン並列, 파이프라인 병렬, 流水线
context parallel: 上下文并行, コンテキスト並列, 컨텍스트 병렬
expert parallel: 专家并行, エキスパート並列, 전문가 병렬
data parallel: 数据并行, データ並列, 데이터 병렬
without recompute: 再計算なし, 无重计算, 不重计算
recompute: 再計算, 重计算
ms: ミリ秒, 毫秒
s: 秒
per: 毎, 每
time: 時間, 时间, 耗时
step: ステップ, 步, 反復, 反复, イテレーション, 迭代
efficiency: 並列化効率, 並列効率, 効率, 扩展效率, 并行效率, 效率
speedup: 加速比, 高速化率, 速度向上率
node hours: 节点小时, 节点·时, 节点时, 節點小時, ノード時間, ノード 時間, ノード時, 노드 시간, 노드시간, 노드·시간
GPU hours: GPU 小时, GPU小时, GPU卡时, 卡时, 卡小时, GPU時間, GPU 時間, GPU 시간, GPU시간
hours: 小时
days: 日数, 天数, 天
cost: 費用, 费用, 成本, コスト
GPU: 卡, 枚
nodes: 노드 수, 노드수, 노드
GPUs: GPU 수
global batch size: 글로벌 배치 크기, 글로벌 배치
micro batch size: 마이크로 배치 크기, 마이크로 배치
batch size: 배치 크기
step time: 스텝 시간, 스텝당 시간, 반복 시간
throughput: 처리량
tokens: 토큰
samples: 샘플
memory: 메모리
sequence length: 시퀀스 길이
length: 길이, 长度, 長さ
layers: 레이어 수, 레이어, 층 수, 층수, 층
parameters: 파라미터 수, 파라미터, 매개변수 수, 매개변수
groups: 그룹
heads: 어텐션 헤드, 헤드 수, 헤드
hidden size: 히든 크기, 히든 차원, 히든, 은닉 차원
model: 모델
s: 초
"""
"""Words of tongues that leave no space between them."""
_LIGATURES = str.maketrans({"œ": "oe", "Œ": "Oe", "ß": "ss", "æ": "ae", "ł": "l", "Ł": "L", "ø": "o", "ı": "i"})
_EITHER_CASE = str.maketrans({"ı": "i", "ſ": "s", "\u0307": ""})


def words_of(text: str) -> dict[str, str]:
    pairs = (line.split(":") for line in text.strip().splitlines())
    return {word.strip(): english for english, words in pairs for word in words.split(",") if " " not in word.strip()}


def signs_of(text: str) -> dict[str, str]:
    lines = re.sub(r",\s+", ",", text.strip()).splitlines()
    return {sign.strip(): name for name, _, signs in (line.partition(":") for line in lines) for sign in signs.split(",")}


STRONG, BESIDE, BY_SIGN = words_of(_WORDS), words_of(_WEAK), signs_of(_SIGNS)
BY_SIGN |= {sign.replace(" ", ""): name for sign, name in BY_SIGN.items()}  # `마이크로배치` as well as `마이크로 배치`
_SIGN = re.compile("|".join(map(re.escape, sorted(BY_SIGN, key=len, reverse=True))))
HAS_SIGN = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
OF_ONE_NODE = re.compile(r"(?<=per )(?:nodes|no)\b|(?<=/)nodes\b", re.IGNORECASE)
"""`je Knoten`, `por nó`: of one, where the word is that of several or means something else by itself."""
LENGTH = re.compile(r"\blength (?:of )?(?:the )?sequences?\b", re.IGNORECASE)
UNITS = {"Go", "Gio", "Mo", "Mio"}
WORD = re.compile(r"[^\W\d_]+")
_MARKS = re.compile(r"[\u0300-\u036f]")


def plain_letters(text: str) -> str:
    """Without accents and ligatures."""
    return text if text.isascii() else _MARKS.sub("", unicodedata.normalize("NFKD", text.translate(_LIGATURES)))


def lowered(word: str) -> str:
    """In small letters, as patterns that take either case match it: a Turkish ı is an i to them."""
    return word.lower() if word.isascii() else word.lower().translate(_EITHER_CASE)


def fromsigns_of(text: str) -> str:
    """With the words of Japanese and Chinese tables in English."""
    if text.isascii() or not HAS_SIGN.search(text):
        return text
    text = re.sub(" {2,}", " ", _SIGN.sub(lambda match: f" {BY_SIGN[match.group()]} ", text)).strip()
    return re.sub(r"/node\w", "/node", re.sub(r" ?([/()]) ?", r"\1", text)).replace("(", " (")


@functools.lru_cache(maxsize=4096)
def in_english(text: str, *, surely: bool = False) -> str:
    """`surely`: the text is known to be no English."""
    if (signs := fromsigns_of(text)) != text:
        return signs
    plain = plain_letters(text)
    words = WORD.findall(plain)
    # The gigaoctet stands behind a number, or as a unit in brackets: English begins sentences with Go.
    units = {word for word in UNITS.intersection(words) if re.search(rf"(?:\d ?|[(\[]){word}\b", plain)}
    if not surely and not units and STRONG.keys().isdisjoint(map(str.lower, words)):
        return text

    def translated(match: re.Match[str]) -> str:
        word = match.group()
        if word in UNITS:
            return STRONG[word] if word in units else word
        return STRONG.get(word.lower()) or BESIDE.get(word.lower()) or word

    return LENGTH.sub("sequence length", OF_ONE_NODE.sub("node", WORD.sub(translated, plain)))
