#!/usr/bin/env bash
# The proof: what to deploy, on real data. Every part goes on where it was interrupted: run the same command again.
#
#   DIR=... RUNS=... MPNET=... bash benchmarks/proof.sh            all parts, in this order
#   DIR=... RUNS=... bash benchmarks/proof.sh data heads static    some
#
#   DIR      the real data (docs/data.md)
#   RUNS     a folder for everything that is made: data, runs, students, reports
#   STORE    the artifact store (default: RUNS/store)
#   MINILM   the first teacher (default: all-MiniLM-L6-v2)
#   MPNET    the second teacher, a folder or hub id (default: sentence-transformers/all-mpnet-base-v2)
#   BEST     the two methods that are trained longer, at one, two and three layers: what parts `two` and `labelled` have
#            shown (default: hpd mse); students of the first one are exported
#   LAYERS   the depths of part `depths` (default: 2 3 1)
#   TWO      the student of parts `labelled` and `dse` (default: auto:2); their texts are others than those of part `two`, and
#            so may be the layers that they rank first: "layers:4,5" is what part `two` took
#   LABEL    what the first one's rows are called before " d=128" (default: HPD (tuned head))
#   WHO      the users of parts `users` and `again` (default: stackexchange captions quora)
#   TASKS    what part `score` scores (default: sts,classification,retrieval)
#   CPUS     processors (default: 2)
#   EXTRA    more options of every sweep, such as "--trials 2 --max-sentences 500" for a quick try
#   SPACES   the search spaces (default: search_spaces/proof)
#   PRECISION what part `depths` trains in: auto, or bf16 where the processor has instructions for it (default: auto)
#   PEERS    a folder on PYTHONPATH that has model2vec and tokenlearn, for part `beside` (default: as installed)
set -eu
cd "$(dirname "$0")/.."
: "${DIR:?the folder of the real data}" "${RUNS:?a folder for what is made}"
STORE=${STORE:-$RUNS/store} MINILM=${MINILM:-all-MiniLM-L6-v2} MPNET=${MPNET:-sentence-transformers/all-mpnet-base-v2}
BEST=${BEST:-hpd mse} LABEL=${LABEL:-HPD (tuned head)} LAYERS=${LAYERS:-2 3 1} TWO=${TWO:-auto:2}
WHO=${WHO:-stackexchange captions quora} CPUS=${CPUS:-2} EXTRA=${EXTRA:-} PYTHON=${PYTHON:-python}
STUDY=$RUNS/data/study USERS=$RUNS/data/users STUDENTS=$RUNS/students
SPACES=${SPACES:-search_spaces/proof} PRECISION=${PRECISION:-auto}
PLACES="--store $STORE --runs $RUNS/runs"
# 310,000 distinct sentences, drawn evenly from their sources. Rows are scored on 20,000 of Quora's documents; part `score`
# takes all 210,937.
READ="--max-sentences 310000 --max-documents 20000"
mkdir -p "$RUNS/done" "$RUNS/logs" "$STUDENTS"

distilbench() { $PYTHON -m distilbench "$@"; }

once() {  # NAME COMMAND...: what is done is not done again
  local name=$1
  shift
  if [ -e "$RUNS/done/$name" ]; then
    echo "$name: done"
    return
  fi
  echo "== $name: $(date '+%d %b %H:%M')"
  "$@" 2>&1 | tee -a "$RUNS/logs/$name.log"
  if [ "${PIPESTATUS[0]}" -ne 0 ]; then
    echo "$name failed: $RUNS/logs/$name.log" >&2
    exit 1
  fi
  touch "$RUNS/done/$name"
}

sweep() {  # NAME OPTIONS...
  local name=$1
  shift
  # shellcheck disable=SC2086
  set -- "$@" --data "$STUDY" --name "$name" --cpus "$CPUS" --no-dashboard $READ $PLACES $EXTRA
  once "$name" distilbench sweep "$@"
}

student() {  # FOLDER RUN ROW: export the best training by dev of a row, with its code
  once "export-$1" distilbench export "$RUNS/runs/$2" --student "$3" --to "$STUDENTS/$1"
}
general() {  # WIDTH: the student of two layers
  student "two-$1" "${BEST%% *}-2" "$LABEL d=$1, int8"
}
relative() { realpath --relative-to=. "$1"; }  # records name folders: without the machine's own

data() { once data "$PYTHON" benchmarks/folders.py "$DIR" "$RUNS/data"; }

# All-MiniLM-L6-v2 as the teacher: heads, static students, every method at two layers, the best two at one to three layers.
heads() {
  sweep heads --method pca,whitening,random_projection,mcr2,neighbours --space real --teacher "$MINILM"
}
static() {
  sweep static --method hpd,mse,mcr2_distil --space $SPACES/static --student static --teacher "$MINILM"
  sweep static-one --method hpd --space $SPACES/static-one --student static --teacher "$MINILM"
}
two() { sweep two --method hpd,mse,crd,mcr2_distil --space $SPACES/two --student auto:2 --teacher "$MINILM"; }
labelled() {
  sweep labelled --method ibkd,contrastive,matryoshka --space $SPACES/two --student "$TWO" --teacher "$MINILM"
}
dse() {  # it reads STS-B's own training pairs and no other text
  READ="--max-sentences 20000 --max-documents 20000" sweep dse --method dse --space $SPACES/two --student "$TWO" \
    --teacher "$MINILM" --max-pairs 0
}
depths() {
  local method layers long=$SPACES/long
  if [ "$PRECISION" != auto ]; then
    long=$RUNS/spaces/$PRECISION
    mkdir -p "$long"
    for method in $BEST; do
      sed -e "s/^fixed: {/fixed: {precision: $PRECISION, /" -e "s/^fixed:\$/fixed:\n  precision: $PRECISION/" "$SPACES/long/$method.yaml" > "$long/$method.yaml"
    done
  fi
  for method in $BEST; do
    for layers in $LAYERS; do
      sweep "$method-$layers" --method "$method" --space "$long" --student "auto:$layers" --teacher "$MINILM"
    done
  done
}
# Heads on the student of two layers, as if it were the teacher: few layers and few bytes.
coded() {
  general 384
  READ="--max-sentences 50000 --max-documents 20000" sweep two-heads --method neighbours --space real \
    --teacher "$(relative "$STUDENTS/two-384")"
}
# A student selected by retrieval, on Quora's dev queries.
retrieval() {
  sweep retrieval-2 --method hpd --space $SPACES/two --student auto:2 --teacher "$MINILM" --select retrieval
}
# All-mpnet-base-v2 as the teacher.
mpnet() {
  mpnet_heads
  mpnet_static
  mpnet_two
}
mpnet_heads() { sweep mpnet-heads --method pca,mcr2,neighbours --space real --teacher "$MPNET"; }
mpnet_static() { sweep mpnet-static --method hpd --space $SPACES/static --student static --teacher "$MPNET"; }
mpnet_two() {
  sweep mpnet-2 --method hpd --space $SPACES/long --student "auto:2@$MINILM" --teacher "$MPNET"
}

# The students to deploy, on every set: all of Quora's documents, classification by SentEval's protocol, cost. Those whose
# sweep has ended.
score() {
  scored two-128 "${BEST%% *}-2" "$LABEL d=128, int8"
  scored static-256 static/hpd "HPD d=256, int8"
  scored two-head-128 two-heads "Neighbours (for int4) d=128, int4"
  scored three-128 "${BEST%% *}-3" "$LABEL d=128, int8"
  scored one-128 "${BEST%% *}-1" "$LABEL d=128, int8"
  scored retrieval-128 retrieval-2 "HPD d=128, int8"
}
scored() {  # FOLDER RUN ROW
  [ -e "$RUNS/done/${2%%/*}" ] || return 0
  student "$@"
  # shellcheck disable=SC2086
  once "score-$1" distilbench evaluate "$(relative "$STUDENTS/$1")" --teacher "$MINILM" --data "$STUDY" \
    --tasks "${TASKS:-sts,classification,retrieval}" --max-documents "${DOCUMENTS:-0}" --quantise int8,int4 \
    --indexes flat,ivf --name "score-$1" $PLACES
}

# Search end to end beside the teacher: what part `score` has scored, in its code, among the documents encoded there.
whole() {
  local found=() folder
  for folder in "$STUDENTS"/*; do
    [ ! -e "$RUNS/done/score-$(basename "$folder")" ] || found+=("$(relative "$folder")")
  done
  [ ${#found[@]} -eq 0 ] || once whole "$PYTHON" benchmarks/end_to_end.py "${found[@]}" --data "$STUDY" --store "$STORE" --teacher "$MINILM" \
    --max-documents "${DOCUMENTS:-0}" --out "$RUNS/end-to-end.json"
}

# Beside what people use instead, for as long as the student of two layers was trained.
beside() {
  general 128
  student static-256 static/hpd "HPD d=256, int8"
  # shellcheck disable=SC2086
  once beside env ${PEERS:+PYTHONPATH="$PEERS${PYTHONPATH:+:$PYTHONPATH}"} "$PYTHON" benchmarks/beside.py \
    --data "$STUDY" --student "$STUDENTS/two-128=$RUNS/runs/${BEST%% *}-2" \
    --student "$STUDENTS/static-256=$RUNS/runs/static/hpd" --records "$RUNS/runs/heads/neighbours/scores.jsonl" \
    --out "$RUNS/beside" --store "$STORE" ${BESIDE:-}
}

# Three users with text and pairs of their own: one command each, then each one's student beside the general one.
users() {
  for user in $WHO; do own user "$user" auto:2; done
  beside_general user
}
# The same from the general student instead of two of the teacher's layers.
again() {
  general 384
  for user in $WHO; do own again "$user" "$(relative "$STUDENTS/two-384")"; done
  beside_general again
}
own() {  # KIND USER STUDENT
  # shellcheck disable=SC2086
  once "$1-$2" distilbench sweep --method hpd --student "$3" --data "$USERS/$2" --select retrieval \
    --teacher "$MINILM" --time-budget "${USER_TIME:-10m}" --name "$1-$2" --cpus "$CPUS" --no-dashboard $PLACES $EXTRA
  once "export-$1-$2" distilbench export "$RUNS/runs/$1-$2" --student "HPD d=128, float32" --to "$RUNS/users/$1-$2-128"
}
beside_general() {  # KIND
  local runs=()
  general 128
  for user in $WHO; do
    # shellcheck disable=SC2086
    once "score-$1-$user" distilbench evaluate "$(relative "$RUNS/users/$1-$user-128")" "$(relative "$STUDENTS/two-128")" \
      --teacher "$MINILM" --data "$USERS/$user" --tasks retrieval --indexes flat --name "score-$1-$user" $PLACES
    runs+=("$RUNS/runs/score-$1-$user")
  done
  $PYTHON benchmarks/own_domain.py "${runs[@]}"
}

# The leaderboards. It may be run at any time: it takes the sweeps that there are.
report() {
  board proof heads static static-one two labelled dse "$(for method in $BEST; do echo "$method-"{1,2,3}; done)"
  board proof-coded two-heads
  board proof-mpnet mpnet-heads mpnet-static mpnet-2
}
board() {  # NAME SWEEPS...
  local name=$1 found=() run
  shift
  for run in $*; do
    for scores in "$RUNS/runs/$run"/scores.jsonl "$RUNS/runs/$run"/*/scores.jsonl; do
      [ -e "$scores" ] && found+=("$(dirname "$scores")")
    done
  done
  [ ${#found[@]} -eq 0 ] || distilbench report "${found[@]}" --out "$RUNS/reports/$name"
}

for part in "${@:-data heads static two labelled dse depths coded retrieval mpnet score whole beside users again report}"; do
  for name in $part; do
    case $name in
      data | heads | static | two | labelled | dse | depths | coded | retrieval) "$name" ;;
      mpnet | mpnet_heads | mpnet_static | mpnet_two) "$name" ;;
      score | whole | beside | users | again | report) "$name" ;;
      *)
        echo "no part called $name" >&2
        exit 2
        ;;
    esac
  done
done
