"""Words of tables in other languages, as the English ones that names are kept in.

    in_english("Temps/itération (s)")          time/iteration (s)
    in_english("séquences de 4096 jetons")     sequences of 4096 tokens
    in_english("a lot of time")                a lot of time: no word here is foreign beyond doubt
"""
from __future__ import annotations

import re
import unicodedata

_WORDS = """
time: temps, tiempo, tempo, zeit
duration: duree, dauer, durata, duracion
iteration: iteracion, iterazione, iteracao
step: schritt, paso, passo, etape
steps: schritte, pasos, passi, etapes
seconds: secondes, segundos, secondi, sekunden
second: seconde, segundo, secondo, sekunde
nodes: noeuds, nodos, knoten, nodi
node: noeud, nodo
devices: dispositivos, geraete, gerate, cartes, tarjetas, karten, rechenkarten
device: dispositivo, geraet, gerat, carte, tarjeta, karte
memory: memoire, memoria, speicher, speicherbedarf, speicherverbrauch, arbeitsspeicher
tokens: jetons, jeton, fichas
samples: echantillons, muestras, beispiele, proben, campioni
layers: couches, capas, schichten, strati, camadas, lagen
heads: tetes, cabezas, koepfe, kopfe
model: modele, modelo, modell, modello
size: taille, tamano, groesse, grosse, dimensione, tamanho
batch: lots, lote, lotto, stapel
batch size: batchgroesse, batchgrosse, stapelgroesse, stapelgrosse, losgrosse, losgroesse
micro batch size: mikrobatch, microlot, microlote, mikrobatchgrosse, mikrobatchgroesse
global batch size: globalbatch, globalbatchgrosse, globalbatchgroesse, gesamtbatch, gesamtbatchgrosse, gesamtbatchgroesse
global: globale, globaler, globales, globalen
sequence: secuencia, sequenz, sequenza, sequencia
sequences: secuencias, sequenzen
sequence length: sequenzlange, sequenzlaenge, kontextlange, kontextlaenge
length: longueur, longitud, laenge, lange, lunghezza
recompute: recalcul, recalculo, neuberechnung, ricalcolo
vocabulary: vokabular, vocabulaire, vocabulario
throughput: debit, rendimiento, durchsatz
number: anzahl, nombre, numero
GB: Go
GiB: Gio
MB: Mo
MiB: Mio
per node: je knoten, pro knoten, par noeud, por nodo
peak: spitze, pic, pico
each: jeweils, chacun, chacune, cada
efficiency: effizienz, efficacite, eficiencia
days: jours, dias, tage, giorni
hours: heures, horas, stunden
"""
_WEAK = """
per: par, por, pro, je
of: de, du, des, von, del
batch: lot
with: avec, mit, con
step: pas
the: le, la, les, el, los, der, die, das
"""
"""Words that English has too, or that are too short to prove a language: they are read only beside one of the others."""
_LIGATURES = str.maketrans({"œ": "oe", "Œ": "Oe", "ß": "ss", "æ": "ae"})


def _table(text: str) -> dict[str, str]:
    pairs = (line.split(":") for line in text.strip().splitlines())
    return {word.strip(): english for english, words in pairs for word in words.split(",") if " " not in word.strip()}


_STRONG, _BESIDE = _table(_WORDS), _table(_WEAK)
_UNITS = {"Go", "Gio", "Mo", "Mio"}
_WORD = re.compile(r"[^\W\d_]+")
_MARKS = re.compile(r"[\u0300-\u036f]")


def plain_letters(text: str) -> str:
    """Without accents and ligatures."""
    return text if text.isascii() else _MARKS.sub("", unicodedata.normalize("NFKD", text.translate(_LIGATURES)))


def in_english(text: str, *, surely: bool = False) -> str:
    """`surely`: the text is known to be no English."""
    plain = plain_letters(text)
    words = _WORD.findall(plain)
    # The gigaoctet stands behind a number, or as a unit in brackets: English begins sentences with Go.
    units = {word for word in words if word in _UNITS and re.search(rf"(?:\d ?|[(\[]){word}\b", plain)}
    if not surely and not units and not any(word.lower() in _STRONG for word in words):
        return text

    def translated(match: re.Match[str]) -> str:
        word = match.group()
        if word in _UNITS:
            return _STRONG[word] if word in units else word
        return _STRONG.get(word.lower()) or _BESIDE.get(word.lower()) or word

    return _WORD.sub(translated, plain)
