#!/usr/bin/env bash
# Search: a small query encoder over the teacher's own documents (results/pairs.md), and heads for codes (results/codes.md).
# Every part goes on where it was interrupted: run the same command again.
#
#   DIR=... RUNS=... bash benchmarks/pairs.sh                 all parts, in this order
#   DIR=... RUNS=... bash benchmarks/pairs.sh codes tables    some
#
#   DIR      the real data (docs/data.md): DIR/retrieval/SET and DIR/unlabeled
#   RUNS     a folder for everything that is made: text, runs, tables
#   TEACHER  the teacher of the runs NAME-...: an encoder's folder, hub id or packaged name (default: all-MiniLM-L6-v2)
#   NAME     (default: minilm)
#   ENCODERS folders of the teachers of part `encoders`
#   PEERS    more options of benchmarks/beside.py, of part `beside`
#   BACKEND  bf16 where the processor has instructions for it (default: torch); layers are trained in it too
#   PYTHON   (default: python)
set -eu
cd "$(dirname "$0")/.."
: "${DIR:?the folder of the real data}" "${RUNS:?a folder for what is made}"
TEACHER=${TEACHER:-all-MiniLM-L6-v2} NAME=${NAME:-minilm} BACKEND=${BACKEND:-torch} PYTHON=${PYTHON:-python}
BOTH=retrieval=1,fidelity=1
DIR=$(cd "$DIR" && pwd) PARTS=${*:-students tables codes}
mkdir -p "$RUNS"
RUNS=$(cd "$RUNS" && pwd)

folder() {  # NAME SET...: a data folder with these retrieval sets alone
  local name=$1
  shift
  mkdir -p "$RUNS/$name"
  for set in "$@"; do ln -sfn "$DIR/retrieval/$set" "$RUNS/$name/$set"; done
}

text() {  # NAME QUESTIONS PASSAGES SENTENCES: lines of each file, as awk's conditions
  mkdir -p "$RUNS/$1"
  lines questions "$2" "$1"
  lines passages "$3" "$1"
  lines sentences "$4" "$1"
}

lines() {  # KIND CONDITION NAME
  [ -e "$RUNS/$3/$1.tsv" ] || gunzip -c "$DIR/unlabeled/$1.tsv.gz" | awk "NR == 1 || $2" > "$RUNS/$3/$1.tsv"
}

common() { echo --select "${1:-retrieval,documents=teacher}" --teacher "$TEACHER" --backend "$BACKEND" --store "$RUNS/store" --runs "$RUNS/runs"; }

ten() {  # eight sets, TrecQA in BEIR's layout, and STS
  folder ten squad boolq wikiqa medquad covidqa climatefever cystic npl
  ln -sfn "$DIR/sts" "$RUNS/ten/sts"
  [ -e "$RUNS/ten/trecqa" ] || PYTHONPATH=benchmarks $PYTHON -c "import folders, pathlib as p
folders.trecqa(p.Path('$DIR/retrieval_extra'), p.Path('$RUNS/ten/trecqa'))"
  text much 1 'NR % 5 == 0' 'NR % 6 == 0'
}

third() {  # the same sets among 1,000 documents of each, and a third of the text
  ten
  text third 'NR % 3 == 0' 'NR % 15 == 0' 'NR % 18 == 0'
  limits="--max-sentences 0 --max-documents 1000 --max-pairs 2000"
}

pairs() {  # the rows of pairs.yaml, whose layers are trained in bfloat16, for this processor
  sed "$([ "$BACKEND" = bf16 ] || echo 's/, precision: bf16//')" search_spaces/studies/pairs.yaml > "$RUNS/pairs.yaml"
  echo "$RUNS/pairs.yaml"
}

students() {  # static, one, two and three layers, three seeds
  ten
  # shellcheck disable=SC2046
  $PYTHON -m distilbench compare "$(pairs)" --data "$RUNS/ten" --text "$RUNS/much/*.tsv" \
    --max-sentences 0 --max-documents 0 --max-pairs 2000 --seeds 3 --name "$NAME-students" \
    --quantise int8,int4,int2,binary,opq64 $(common)
}

codes() {  # heads for 1 to 4 bits over three seeds, beside FAISS's codes of the teacher
  ten
  local given rows=()
  given="--data $RUNS/ten --max-sentences 0 --max-documents 0 --max-pairs 2000 $(common retrieval)"
  for head in '=256 for 4 bits' '=256 for 3 bits' '=256 for 2 bits' '=168 for 3 bits' '=128 for 4 bits' '=256, opq64' \
    '=128 for 3 bits' '=128 for 2 bits' '=256 for 1 bit' '=84 for 3 bits' '=128, opq32' '=64 for 2 bits' '=128 for 1 bit' \
    '=128, opq16' '=64 for 1 bit'; do rows+=(--row "Neighbours d$head"); done
  for head in '=256 for 2 bits' '=256, opq64' '=256 for 1 bit' '=128, opq32' '=128 for 1 bit' '=128, opq16'; do
    rows+=(--row "Whitened d$head")
  done
  # shellcheck disable=SC2086
  $PYTHON -m distilbench compare search_spaces/studies/bytes.yaml $given --text "$RUNS/much/*.tsv" "${rows[@]}" --seeds 3 \
    --name codes-heads --quantise none
  # shellcheck disable=SC2086
  $PYTHON -m distilbench sweep --method pca $given --text "$RUNS/much/*.tsv" --name codes-faiss \
    --quantise int4,int2,binary --faiss-baselines 8,16,32,48,64,96,128
  # shellcheck disable=SC2086
  $PYTHON -m distilbench sweep --method whitening $given --text "$RUNS/much/*.tsv" --name codes-whitening \
    --faiss-baselines 8
}

quora() {  # heads and codes of 8, 16 and 32 bytes among all of Quora's documents; residual codes and RaBitQ are searched too slowly
  local given row rows=()
  $PYTHON benchmarks/folders.py "$DIR" "$RUNS/proof"  # half of the dev queries are its dev queries, the others test
  mkdir -p "$RUNS/duplicates"
  ln -sfn "$RUNS/proof/study/quora" "$RUNS/duplicates/quora"
  ln -sfn "$DIR/sts" "$RUNS/duplicates/sts"
  text much 1 'NR % 5 == 0' 'NR % 6 == 0'
  given="--data $RUNS/duplicates --max-sentences 0 --max-documents 0 --max-pairs 10000 $(common retrieval)"
  for row in 'Neighbours d=32, opq8' 'Neighbours d=64 for 1 bit' 'Neighbours d=64, opq16' 'Neighbours d=128, opq32' \
    'Whitened d=128, opq16' 'Whitened d=128 for 1 bit' 'Whitened d=128, opq32' 'Whitened d=256 for 1 bit'; do
    rows+=(--row "$row")
  done
  # shellcheck disable=SC2086
  $PYTHON -m distilbench compare search_spaces/studies/bytes.yaml $given --text "$RUNS/much/*.tsv" "${rows[@]}" --seeds 3 \
    --name quora-heads --quantise none
  # shellcheck disable=SC2086
  $PYTHON -m distilbench sweep --method pca $given --text "$RUNS/much/*.tsv" --name quora-pca --quantise binary
  $PYTHON -m distilbench evaluate "$TEACHER" --data "$RUNS/duplicates" --tasks sts,retrieval --max-documents 0 \
    --quantise opq8,itq8,tq1-8,lsh8,opq16,itq16,tq1-16,opq32,itq32,tq1-32 --indexes flat --name quora-teacher \
    --backend "$BACKEND" --store "$RUNS/store" --runs "$RUNS/runs"
}

encoders() {  # a head, a static student, two layers and their pairs with every teacher of ENCODERS; three sets, and STS
  folder three squad covidqa cystic
  ln -sfn "$DIR/sts" "$RUNS/three/sts"
  text some 'NR % 8 == 0' 'NR % 40 == 0' 'NR % 80 == 0'
  local TEACHER
  for TEACHER in ${ENCODERS:?folders of encoders, with spaces between}; do
    # shellcheck disable=SC2046
    $PYTHON -m distilbench compare search_spaces/studies/{encoders,bytes}.yaml --row static --row layers \
      --row 'Neighbours d=128 for 2 bits' --data "$RUNS/three" --text "$RUNS/some/*.tsv" --max-sentences 0 \
      --max-documents 0 --max-pairs 2000 --name "encoders-$(basename "$TEACHER")" --quantise int8,binary,opq64 \
      $(common retrieval)
  done
}

users() {  # three users of search, ten minutes each: a static student of their own text, beside a general one and that one continued
  local user kind student apart='!/\t(medquad|squad)$/'
  folder others boolq wikiqa covidqa climatefever cystic npl
  text general "$apart" "NR % 5 == 0 && $apart" 'NR % 6 == 0'
  for user in medquad squad; do folder "users/$user" "$user"; done
  $PYTHON benchmarks/folders.py "$DIR" "$RUNS/proof"
  ln -sfn "$RUNS/proof/users/stackexchange" "$RUNS/users/stackexchange"
  # shellcheck disable=SC2046
  $PYTHON -m distilbench compare "$(pairs)" --row static --data "$RUNS/others" --text "$RUNS/general/*.tsv" \
    --max-sentences 0 --max-documents 1000 --max-pairs 2000 --seeds 1 --name general --quantise int8 $(common retrieval)
  exported general "static, d=256, float32" general
  for user in stackexchange medquad squad; do
    for kind in own continued; do  # each with a store of its own: its ten minutes pay for what its teacher reads
      student=$([ $kind = own ] && echo static || echo "static@$RUNS/exports/general")
      # shellcheck disable=SC2046
      $PYTHON -m distilbench sweep --method hpd --space search_spaces/static --student "$student" --data "$RUNS/users/$user" \
        --time-budget 10m --name "$kind-$user" $(common retrieval) --store "$RUNS/stores/$kind-$user"
      exported "$kind-$user" "HPD d=256, float32" "$kind-$user"
    done
    # shellcheck disable=SC2046
    $PYTHON -m distilbench evaluate "$RUNS/exports/own-$user" "$RUNS/exports/general" "$RUNS/exports/continued-$user" \
      --data "$RUNS/users/$user" --tasks retrieval --indexes flat --max-documents 0 --name "score-$user" \
      --teacher "$TEACHER" --backend "$BACKEND" --store "$RUNS/store" --runs "$RUNS/runs"
  done
  $PYTHON benchmarks/own_domain.py "$RUNS"/runs/score-*
}

beside() {  # what people use instead, with documents of their own, among 1,000 documents of each collection; one seed
  third
  local name places="--store $RUNS/store --runs $RUNS/runs" students=()
  for name in two static; do
    # shellcheck disable=SC2046,SC2086
    $PYTHON -m distilbench compare "$(pairs)" --row "${name/two/two layers}" --data "$RUNS/ten" $limits \
      --text "$RUNS/third/*.tsv" --seeds 1 --name "beside-$name" --quantise int8,int4,int2,binary $(common "$BOTH,documents=teacher")
    exported "beside-$name" "${name/two/two layers}, d=384, float32" "beside-$name"
    students+=(--student "$RUNS/exports/beside-$name=$RUNS/runs/beside-$name")
  done
  # shellcheck disable=SC2086
  $PYTHON benchmarks/beside.py "${students[@]}" --data "$RUNS/ten" --text "$RUNS/third/*.tsv" $limits --backend "$BACKEND" \
    --select "$BOTH,documents=teacher" --tasks sts,retrieval --store "$RUNS/store" --out "$RUNS/beside" ${PEERS:-}
  # shellcheck disable=SC2086
  $PYTHON -m distilbench evaluate "$RUNS/exports/beside-two" --data "$RUNS/ten" --tasks sts,retrieval --indexes flat \
    --max-documents 1000 --backend int8 --name beside-int8 $places
  # shellcheck disable=SC2086
  $PYTHON -m distilbench evaluate "$RUNS"/exports/beside-{two,static} --data "$DIR" --tasks classification --no-cost \
    --name beside-classes $places
}

mixes() {  # which text trains one and three layers: as many texts of each mix, among the documents of part beside; one seed
  third
  sed 's/auto:1/layers:5/; s/auto:3/layers:0,4,5/' "$(pairs)" > "$RUNS/mixes.yaml"  # what students has: one choice for all mixes
  text sixth 'NR % 6 == 0' 'NR % 30 == 0' 'NR % 36 == 0'
  local kind
  local -A files=([all]='sixth/*' [queries]=third/questions [others]='third/[ps]*')  # judgements have queries: --max-pairs 1
  for kind in all queries others; do
    # shellcheck disable=SC2046
    $PYTHON -m distilbench compare "$RUNS/mixes.yaml" --row 'one layer' --row 'three layers' --data "$RUNS/ten" --max-sentences 0 \
      --max-documents 1000 --max-pairs 1 --text "$RUNS/${files[$kind]}.tsv" --seeds 1 --name "mixes-$kind" \
      --quantise int4 $(common)
  done
}

unlabelled() {  # heads, codes and PCA, each chosen by search and by fidelity, with the text and documents of part beside
  third
  local given
  given="--data $RUNS/ten $limits $(common "$BOTH")"
  # shellcheck disable=SC2086
  $PYTHON -m distilbench compare search_spaces/studies/bytes.yaml $given --text "$RUNS/third/*.tsv" --seeds 1 \
    --name unlabelled-heads --quantise none
  # shellcheck disable=SC2086
  $PYTHON -m distilbench sweep --method pca $given --text "$RUNS/third/*.tsv" --name unlabelled-pca \
    --quantise int8,int4,int2,binary,opq64 --faiss-baselines 8,16,32,64
}

sizes() {  # what choosing without labels costs in each size, of parts beside and unlabelled
  $PYTHON benchmarks/selection.py sizes "$RUNS"/runs/{unlabelled-heads,unlabelled-pca,beside-two,beside-static}/scores.jsonl
}

exported() {  # FOLDER ROW RUN
  [ -e "$RUNS/exports/$1" ] || $PYTHON -m distilbench export "$RUNS/runs/$3" --student "$2" --to "$RUNS/exports/$1"
}

tables() {
  for run in "$RUNS"/runs/"$NAME"-*; do
    echo "## $(basename "$run")"
    $PYTHON tools/pairs_table.py "$run" --sets
  done
}

for part in $PARTS; do
  echo "== $part: $(date '+%d %b %H:%M')"
  "$part"
done
