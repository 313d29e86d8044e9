"""Headings in other languages as English ones, by more words than text is put into English by.

    heading_in_english("Trainingsdurchsatz [Tsd. Tokens/s]")     training throughput [thousands. tokens/s]
    heading_in_english("Длительность обучения, сут.")            duration training, days.
    heading_in_english("学習所要時間（日）")                        training duration (days)

A heading is a few words long and names a quantity: what may mean many things in a sentence is clear there.
"""
from __future__ import annotations

import re
from functools import lru_cache

from seatrial.tables import tongues
from seatrial.tables.tongues import HAS_SIGN, LENGTH, OF_ONE_NODE, UNITS, WORD, plain_letters, signs_of, words_of

_WORDS = """
achieved: effektiv, erreicht, erreichte, atteint, atteints, atteinte, obtenus, alcanzados, logrados, obtidos, effettivi
achieved: ottenuti, behaalde, достигнутая, достигнутые, osiagniete, osiagniety, medidos, medido, mesures, gemessen
achieved: gemessene, gemeten, misurati, zmierzona, zmierzone, факт, фактические, obtenidos, reales, reels, sostenido
achieved: soutenue
bandwidth: largura, bandbreite, bande, ancho, banda, полоса, bandbreedte, sirka
performance: desempenho, rechenleistung, prestazioni, производительность, rekensnelheid
throughput: пропускная, doorzet
hours: ore, uur, godz, ч
hour: ora, stunde, heure, hora, godzine, godzina, godzinu, час, часа, saat
days: сутки, dagen, сут, dny, gunler
minute: minuta, minuto, minuut, минуту, минута
minutes: minuten, minuti, minutos, минут, минуты, minuty
training: entrainement, entrenamiento, treino, treinamento, addestramento, trening, treningu, treningowe, treningowych
training: treningowy, обучения, обучение, treningowa, treningowej, egitim, trenink, treninku, обучении, тренировки
trained: trainierte, entraines, entrenados, treinados, addestrati, обработано
processed: traites, procesados, processados, elaborati, verarbeitete, verarbeitet, verwerkte, przetworzone
used: utilisee, utilise, usada, usado, utilizada, verwendet, belegt, gebruikt, occupata, usata, занято, использовано, zajeta
used: uzyta
usage: verbrauch, belegung, gebruik, zuzycie, zajetosc, uso, occupation, utilizzata, kullanimi
consumed: consommee, consumida, consumata, verbraucht, verbruikt, zuzyta
utilization: auslastung, utilisation, utilizacion, utilizacao, utilizzo, utilizzazione, wykorzystanie, benutting
utilization: использование, ausnutzung, выполнения
average: mittl, mittlere, mittlerer, moyen, moyenne, medio, promedio, gemiddeld, gemiddelde, srednia, средняя, средний
average: среднее, ortalama, durchschnittlich, durchschn, srednie, sredni
total: totales, totais, totali, complessiva, complessivo, lacznie, laczna, laczny, calkowity, calkowita, суммарно, всего
total: общее, общии, celkem, toplam, gesamte, totaux, agregado, calego
parallelism: parallelisme, paralelismo, parallelismo, parallelitat, parallelismus, parallellisme, rownoleglosc, параллелизм
parallelism: paralellik, parallelitatsgrad, parallelisierung, paralelizm
data: donnees, datos, dados, dati, daten, данным, данных, danych, datovy
tok: ток
accumulation: нак, накопл, накопление, накопления, birikimi
tensor: tensoriel, tensorial, tensoriale, tensorielle, tensorowa, тензорныи
pipeline: pijplijn, potok, potoku, potokowa, конвеиера, конвеиерныи, конвеиер
context: contextuel, kontekstu, контексту, контекста
expert: expertos, especialistas, esperti, experten, экспертам, экспертов, ekspertow, expertow
virtual: virtuel, virtuels, virtuelle, virtuellen, virtuales, virtuais, virtuali, virtueller, wirtualne, virtuele
virtual: виртуальных, виртуальные
stages: stadien, фаз, стадии, fazy, pijplijnfasen, etapy
degree: degre, grado, grau, graad, stopien, степень
heads: koppen, kopf
attention: aandacht, aandachts, atencion, atencao, attenzione, uwagi, внимания
dimension: wymiar, dimensie
intermediate: intermedia, intermediaria, intermediaire, zwischen, tussenlaag, posrednia
hidden: cachees, ocultas, verborgen, nascosti, скрытых
gradient: gradientes, gradienti, gradientu, gradienten, градиентов, градиента, gradientow
accumulation: accumulo, acumulo, acumulaciones
recompute: rekomputacja, пересчет, herberekening, prepocet
activations: attivazioni, activaciones, ativacoes, aktivierungen, активации, aktywacji, activaties
schedule: ordonnancement, planificacion, escalonamento, schedulazione, расписание, ablaufplan, harmonogram, agendamento
schedule: планировщик
bubble: bulle, burbuja, bolha, bolla, blase, bubbel, пузырь, пузыря, pecherzyk, bublina
loss: perte, perdida, perda, perdita, verlust, verlies, потери, лосс, ztrata, kayip
final: finale, finais, konczowa, финальныи, konec
precision: prazision, precisione, precisao, precisie, precyzja, hassasiyet, rechengenauigkeit
numeric: numerique, numerica, numerische, numerieke, numeryczna
type: tipo, тип, tipi
framework: raamwerk, rahmenwerk, фреимворк, cadriciel
library: biblioteca, bibliotheque, bibliothek, bibliotheek, biblioteka, библиотека, libreria
engine: moteur, motore
status: statut, estado, situacao, stato, zustand, состояние, статус, durum
result: esito, resultado, risultato, resultat, ergebnis, wynik, результат, vysledek
run: lauf, ejecucion, execucao, przebiegu, przebieg, запуска, запуск, corrida
name: nom, nome, nazwa, naam, имя, название
cost: kosten, cout, couts, coste, costo, custo, koszt, стоимость, расходы, maliyet, naklady
price: preis, prix, precio, preco, prezzo, prijs, cena, цена, fiyat, tarif
energy: energie, energia, энергия, энергии, enerji, energii, энергопотребление, stromverbrauch, energieverbruik
consumption: energieverbrauch, verbruik, consommation, consumo, потребление, spotrzeba
power: puissance, potencia, potenza, leistungsaufnahme, vermogen, мощность, pobor, prikon, stromaufnahme
speedup: beschleunigung, acceleration, aceleracion, aceleracao, accelerazione, przyspieszenie, ускорение, versnelling
speedup: zrychleni
trainable: trainierbar, entrainables, entrenables, treinaveis
active: aktive, actifs, activos, ativos, attivi, активных, активные, aktywne, actieve
vocabulary: vocabolario, vokabelgrosse, slownika, словаря, woordenschat, slovnik
sample: probke, muestra, amostra, echantillon, campione, образец, probka, voorbeeld
inference: inferenz, inferencia, inferenza, inferentie, инференса, инференс, inferencji, wnioskowanie, cikarim, inferencni
loading: chargement, carga, carregamento, caricamento, laden, загрузки, ladowania, nacitani
saving: enregistrement, guardado, salvataggio, speichern, zapisu, сохранения
warm up: calentamiento, aquecimento, riscaldamento, rozgrzewki, прогрева, aufwarm, aufwarmschritte, opwarm
accuracy: genauigkeit, exactitude, exactitud, acuracia, accuratezza, точность, dokladnosc, nauwkeurigheid, presnost
accuracy: dogruluk
latency: latence, latencia, latenza, latenz, задержка, opoznienie, vertraging, gecikme
request: requete, peticion, requisicao, richiesta, anfrage, запроса, verzoek, ответа, istek
network: reseau, rede, rete, netz, netzwerk, сети, sieci, netwerk
host: hosta, хоста, wirt
checkpoint: punktow, чекпоинта, чекпоинтов, checkpointu
evaluation: evaluacion, avaliacao, valutazione, auswertung, оценки, ewaluacji, evaluatie
test: testowym, тесте, testset
forward: прямого, vorwarts, avant
backward: обратного, ruckwarts, arriere
pass: прохода, przejscia
theoretical: theoretisch, theoretische, theorique, teorico, teorica, теоретическая, teoretyczna, паспорту, specyfikacji
capacity: pojemnosc, capacite, capacidad, capacidade, capacita, kapazitat, capaciteit
queue: warteschlange, attente, espera, wachtrij, очереди, kolejki
number: anz, nb
stage: etapa, stadio, etap
zero stage: zerostufe
steps: passos, krokach
parameters: параметры, параметров, parametry, parametrowe
size: rozmiar, rozmer, dimensioni
micro batch: mikropartii, mikropartia, микробатчеи
batch: batcha, batchu, батчеи
iteration: iteracji, итерации, iteratie, iterace
seconds: seconden
peak: picco, szczytowe, szczytowy, szczytowa, maksimum, пиковая, пиковое, spitzen
samples: сэмплов, сэмплы, семплов
process: процесс, proces, processo, proceso
token: токен
clock: reloj, orologio, horloge, zegarowy
job: zadania, задания
speed: geschwindigkeit, vitesse, velocidad, velocidade, velocita, snelheid, predkosc, скорость, hiz, rychlost
rate: taux, tasa, taxa, tasso, способность
fraction: anteil, доля, fraccion, fracao, frazione, udzial, podil, aandeel
thousands: tausend, tsd, milliers, miles, milhares, migliaia, тыс, тысяч, tys, tysiecy, duizend
millions: mio, millionen, millones, milhoes, milioni, млн, mln, miljoen, milionow, milionu, milyon
billions: mrd, milliarden, milliards, bilhoes, miliardi, mld, млрд, miliardow, miljard, miliard, milliard, bi, md
trillions: billionen, billones, biljoen, bln, trilhoes, bilioni, трлн, bilionow, trilyon
"""
_WEAK = """
per: za, за
of: di, della, dello, delle, dei, degli, van, при
network: red
average: sr, media, gem
dimension: dim
power: moc
type: typ
total: tout, hele
GiB: гиб
MiB: миб
kWh: квтч
TFLOPS: тфлопс
PFLOPS: пфлопс
TFLOP: тфлоп
W: вт
kW: квт
model: modeli
between: entre, tra, fra
status: stan, stav
queue: coda
length: long
stage: fase
K: к
"""
"""Words that English has too, or that are too short to prove a language."""
_SIGNS = """
per card: 每张卡
parameters: 参数量, パラメータ数, 参数数, 파라미터 수, 파라미터, 매개변수
micro batch size: 마이크로배치 크기, 마이크로배치
layers: Transformer層数, Transformer层数, 층수
attention heads: 어텐션 헤드, アテンションヘッド数, 어텐션 헤드 수
per node: 每机, 每台, 1ノード当り, ノード当り
per GPU: 카드당, 장당
per step: 스텝당, ステップあたり, ステップ毎, 每步
total number of: 総, 总数, 총
total: 全体, 全系, 总计, 集群总, 总, 合計, 合计, 전체, 합계
number: 数, 個数, 个数, 개수, 수, 回数, 次数, 횟수
training: 学習, 训练, 訓練, 학습, 훈련
duration: 所要時間, 소요시간, 소요 시간, 时长, 用时, 총시간
time: 시간
(hours): (시간), [時間], (時間)
(days): (日), (天), (일)
parallel: 並列, 并行, 병렬, 並列化
parallel size: 並列数, 並列度, 並列サイズ, 并行度, 并行数, 并行大小, 并行规模, 병렬 수, 병렬수, 병렬화 수, 병렬도
tensor: テンソル, 张量, 텐서
pipeline: パイプライン, 流水线, 流水, 파이프라인
data: データ, 数据, 데이터
expert: エキスパート, 专家, 전문가, 엑스퍼트
context: コンテキスト, 文脈, 上下文, 컨텍스트
sequence: 系列, シーケンス, 序列, 시퀀스
virtual: 仮想, 虚拟, 가상
stages: ステージ数, ステージ, 级数, 阶段数, 스테이지 수, 스테이지, 단계
stage: 阶段, 段階
schedule: スケジュール, 调度, 調度, 스케줄, スケジューリング, 스케줄링
bubble: バブル, 气泡, 버블
hidden size: 隠れ層の次元, 隠れ次元数, 은닉 크기
dim: 次元, 维度, 차원
intermediate: 中間, 中间, 중간
KV heads: KV 헤드 수, KV头数, KVヘッド数
head: 每头
active: アクティブ, 激活, 활성
optimizer: 优化器, オプティマイザ, 옵티마이저
update: 更新, 업데이트
warm up: ウォームアップ, 预热, 워밍업, 웜업
utilization: 利用率, 使用率, 활용률, 이용률, 稼働率
FLOPs utilization: 算力利用率
FLOPs: 算力
achieved performance: 実効演算性能, 実効性能
performance: 演算性能, 性能, 성능
achieved: 実効, 实测, 实际, 実測, 실측, 실효
hardware: 硬件, ハードウェア, 하드웨어
speed: 速度, 속도
speedup: 速度比, 속도 향상, 가속비, 速度向上, 加速
theoretical: 理論, 理论, 이론
inference: 推論, 推理, 추론
checkpoint size: チェックポイントサイズ, 检查点大小, ckpt大小, 체크포인트 크기
checkpoint: チェックポイント, 检查点, 체크포인트
host: ホスト, 主机, 호스트
data loading: データ読み込み, 数据加载, 数据读取, 데이터 로딩, 데이터로딩
queue: 待ち, 排队, 대기
bandwidth: 帯域, 带宽, 대역폭
network: ネットワーク, 网络, 네트워크
request: リクエスト, 请求, 요청
latency: レイテンシ, 延迟, 지연시간, 지연
first: 首, 最初, 첫
evaluation: 評価, 评估, 평가
dataset size: データセットサイズ, 数据集大小, 데이터셋 크기, 데이터셋크기
interval: 周期, 間隔, 주기
accuracy: 正確度, 准确率, 정확도, 正解率
test: テスト, 测试
precision: 計算精度, 数值精度, 精度, 计算精度, 训练精度, 연산 정밀도, 정밀도
compute precision: 混合精度
framework: フレームワーク, 框架, 프레임워크
status: 状態, 状态, 상태
result: 実行結果, 结果, 結果, 결과
run: 実行, 运行, 실행
loss: 損失, 损失, 손실
final: 最終, 最终, 최종
scaling efficiency: 线性度, 扩展率
price: 単価, 单价, 단가
cost: 비용
energy: 消費電力量, 能耗, 耗电量, 전력량, 에너지
power: 消費電力, 功耗, 소비전력, 전력, 電力
average: 平均, 평균
peak: ピーク, 峰值, 피크, 最大
consumption: 消費, 소비
usage: 使用量, 占用, 사용량
memory: VRAM, 메모리 사용량
nodes: 机器数, 机器
GPUs: 总卡数
number of NPUs: NPU总数, NPU数
per day: 每天, 1日あたり, 일일, 每日
/day: /日, /天, /일
per minute: 每分钟
B: 10億
億: 億, 亿, 억
T: 万亿, 兆, 조
M: 백만, 百万
K: 千
tokens: token数
recompute: 是否重计算, 재계산, 重算
"""
_PARTS_ALONE = """
training: training, trainings
token: token, tokens
gpu: gpu
batch: batch
pipeline: pipeline
parameters: parameter, parametern
experts: expert, experten
data: data
model: model
name: name
dimension: dimension
final: end
loading: laad, lade
run: lauf
intermediate: tussen
layers: laag
usage: bedarf, verbruik, gebruik, verbrauch, belegung
schedule: schema, schedule
duration: duur
days: dagen
number: zahl
gradient: gradient, gradienten
context: kontext, context
hours: uren
hour: uur
micro: mikro, micro
global: global
step: stap, stappen, schritt
host: arbeits, werk, haupt
bubble: bubbel
memory: speicher, geheugen
sequence: sequentie
"""
"""What is a word of a language only as a part of one: `Laadtijd`, `Arbeitsspeicher`."""
_STRONG = {**tongues.STRONG, **words_of(_WORDS)}
_BESIDE = {**tongues.BESIDE, **words_of(_WEAK)}
_BY_SIGN = {**tongues.BY_SIGN, **signs_of(_SIGNS)}
_SIGN = re.compile("|".join(map(re.escape, sorted(_BY_SIGN, key=len, reverse=True))))
_PARTS = {**{word: english for word, english in _STRONG.items() if len(word) > 3 and word.isascii()}, **words_of(_PARTS_ALONE)}
_LINKS = ("", "s", "n", "en", "es")
_PER_OF = re.compile(r"^(?:1 )?(per (?:node|GPU|step|day|minute)) +(?=\S)(.+?)(?= ?[(\[]|$)", re.IGNORECASE)
_WATTS = {"к": "k", "М": "M", "м": "M", "Г": "G"}
_WATT_HOURS = re.compile(r"\b(к|М|м|Г)?Вт[·⋅*]?\s?ч\b")
_PHRASES = tuple((re.compile(said, re.IGNORECASE), english) for said, english in (
    (r"\b(?:miles de millones|mil milhoes|mil mln)\b", "billions"), (r"\b[MМ] ?ток(?=[ /])", "Mtok"),
    (r"\bdimensao (?=\w)", "dimension "),
    (r"\b(?:pro|je) Tag\b|\bper dag\b", "per day"), (r"\b(?:al |all['’])(?=secondo|ora|minuto|giorno)", "per "),
    (r"\b(?:[dl]|dell|all|nell)['’](?=\w)", "of ")))  # fmt: skip


def heading_from_signs(text: str) -> str:
    """With the words of Japanese, Chinese and Korean headings in English."""
    if text.isascii() or not HAS_SIGN.search(text):
        return text
    text = re.sub(" {2,}", " ", _SIGN.sub(lambda match: f" {_BY_SIGN[match.group()]} ", text)).strip()
    text = re.sub(r"/node\w", "/node", re.sub(r" ?([/()]) ?", r"\1", text)).replace("(", " (").strip()
    return _PER_OF.sub(r"\2 \1", text)


@lru_cache(maxsize=16384)
def _compound(word: str) -> str:
    """A German or Dutch word that is nothing but known ones: `trainingsdurchsatz` is training throughput; empty of others."""
    if len(word) < 8 or not word.isascii() or word in _STRONG:
        return ""
    return " ".join(_split(word))


def _split(word: str) -> list[str]:
    for at in range(len(word) - 3, 2, -1):
        first = _PARTS.get(word[:at])
        if first is None:
            continue
        for link in _LINKS:
            rest = word[at:].removeprefix(link) if word[at:].startswith(link) else ""
            if rest in _PARTS:
                return [first, _PARTS[rest]]
            if len(rest) > 6 and (more := _split(rest)):
                return [first, *more]
    return []


@lru_cache(maxsize=8192)
def heading_in_english(text: str, *, surely: bool = False) -> str:
    """`surely`: the heading is known to be no English."""
    if (signs := heading_from_signs(text)) != text:
        return signs
    plain = plain_letters(text)
    words = WORD.findall(plain)
    # The gigaoctet stands behind a number, or as a unit in brackets.
    units = {word for word in UNITS.intersection(words) if re.search(rf"(?:\d ?|[(\[]){word}\b", plain)}
    lower = [word.lower() for word in words if word not in UNITS]
    if not surely and not units and _STRONG.keys().isdisjoint(lower) and not any(map(_compound, lower)):
        return text
    plain = _WATT_HOURS.sub(lambda match: f"{_WATTS.get(match[1], '')}Wh", plain)
    for phrase, english in _PHRASES:
        plain = phrase.sub(english, plain)

    def translated(match: re.Match[str]) -> str:
        word = match.group()
        if word in UNITS:
            return _STRONG[word] if word in units else word
        low = word.lower()
        return _STRONG.get(low) or _BESIDE.get(low) or _compound(low) or word

    return LENGTH.sub("sequence length", OF_ONE_NODE.sub("node", WORD.sub(translated, plain)))
