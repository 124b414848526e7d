#!/bin/sh
# usage: tests/cuda/mutants.sh BUILD [NAME]: plant faults in the CUDA kernels, one at a time, and run
# the kernels' conformance tests, which must fail for each: in the check build, or else by values in
# the plain one. Needs $MAKE ("make") and what `make cuda-mutants` builds. NAME selects the mutants
# whose names contain it.
build=${1:-build}
only=${2:-}
cd "$(dirname "$0")/../.." || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
${MAKE:-make} --no-print-directory -s BUILD="$build" cuda-flags >"$dir/flags" || exit 2
plain_compile= check_compile= check_finish= plain_objects= check_objects= link= libraries=
. "$dir/flags"
tried=0 missed=0

# run_kind KIND FILES TESTS: compiles the changed copies of FILES and runs TESTS with them. Sets
# $result to what was found, or to nothing.
run_kind() {
    objects=
    for file in $2; do
        object=$dir/$(basename "$file").o
        # Headers are searched in the changed copy first.
        if [ "$1" = plain ]; then
            $plain_compile -I"$dir" "$dir/$file" -MF /dev/null -o "$object" || return 1
        else
            $check_compile -I"$dir" "$dir/$file" -MF /dev/null -o "$object" || return 1
            $check_finish "$object"
        fi
        objects="$objects $object"
    done
    others=$plain_objects
    [ "$1" = plain ] || others=$(printf '%s\n' $check_objects | grep -vF "$(printf '/%s\n' $2 | sed 's|\.cu$|.o|')")
    $link -o "$dir/tests" $objects $others $libraries || return 1
    result=
    for seed in 0 1; do
        out=$(EMU_SEED=$seed FSDP_TESTS=tests timeout 300 "$dir/tests" --file "$3" 2>&1) && continue
        result=$(printf '%s\n' "$out" | grep -m1 -E '== emulator: ' | cut -c 14-110)
        result="seed $seed: ${result:-wrong values}"
        break
    done
}

# mutant NAME SOURCE TESTS SED [FILES]: plants a fault with the script SED in SOURCE, a file of
# src/kernels/cuda. FILES are the .cu files that include it, if it is a header; TESTS (test_...) must
# fail. The mutant is skipped if there is no SOURCE.
mutant() {
    name=$1 source=src/kernels/cuda/$2 tests=$3
    case $name in *"$only"*) ;; *) return ;; esac
    [ -e "$source" ] || { echo "skip $name: there is no $source"; return; }
    files=$source
    [ -z "${5:-}" ] || files=$(echo src/kernels/cuda/$5)
    rm -rf "$dir/src"
    mkdir -p "$dir/src/kernels"
    cp -r src/kernels/cuda "$dir/src/kernels/cuda"
    sed -i -E "$4" "$dir/$source"
    tried=$((tried + 1))
    if cmp -s "$source" "$dir/$source"; then
        echo "FAIL $name: the script changes nothing in $source"
        missed=$((missed + 1))
        return
    fi
    for kind in check plain; do
        if ! run_kind $kind "$files" "$tests"; then
            result="it does not compile"
            break
        fi
        [ -z "$result" ] || break
    done
    if [ -n "$result" ] && [ "$result" != "it does not compile" ]; then
        echo "found $name ($kind): $result"
    else
        echo "FAIL $name: ${result:-not found}"
        missed=$((missed + 1))
    fi
}

mutant "fill: an element too many" memory.cu test_memory 's/i < n; i \+= step/i <= n; i += step/'
mutant "fill: the last element is missing" memory.cu test_memory 's/i < n; i \+= step/i < n - 1; i += step/'
mutant "fill: two blocks write one element" memory.cu test_memory 's/blockIdx\.x \* blockDim\.x \+ threadIdx\.x; i/threadIdx.x; i/'

# Narrow states, NF4 and float8.
mutant "adamw in 8 bits: no barrier before the maps are read" adamw_8bit.cu test_narrow_states '/unsigned_map\[i\];/,/first =/s/__syncthreads\(\);//'
mutant "adamw in 8 bits: half of a warp is missing in the scale" adamw_8bit.cu test_narrow_states '/float largest_of_warp/,/^}/s|WARP / 2|WARP / 4|'
mutant "stochastic rounding: the next counter is the same" adamw.cuh test_narrow_states 's/philox\(key, counter \+ 1\)/philox(key, counter)/' 'adamw*.cu'
mutant "schedule_free: z is not kept in a switch" schedule_free.cu test_schedule_free 's/if \(t\.kept\)/if (t.kept \&\& i)/'
mutant "nf4: one scale for elements of several blocks" nf4.cu test_nf4 's/b && !is_uniform/b \&\& is_uniform/'
mutant "nf4: no barrier before the levels are read" nf4.cu test_nf4 's/__syncthreads\(\);//'
mutant "float8: no barrier before a transposed tile is read" float8.cu test_float8 '/void transpose_tiles/,/^}/s/__syncthreads\(\);//'
mutant "float8: no zeros behind transposed codes" float8.cu test_float8 's/begin \+ i < ld && j/begin + i < rows \&\& j/'
mutant "float8: the last column has no scale" float8.cu test_float8 's/j \+ e < columns && largest/j + e + 1 < columns \&\& largest/'

# The tensor-core kernels of attention.
attention() { mutant "attention: $1" "attention_$2.cuh" test_attention "$3" 'attention_tensor*.cu'; }
attention "no cp.async wait before products" products '/void copies_arrive\(void\)/,/^}/s/cp_wait<PENDING>\(\);/cp_wait<PENDING + 1>();/'
attention "no barrier before products" products '/void copies_arrive\(void\)/,/^}/s/__syncthreads\(\);//'
attention "no proxy fence before wgmma" products '/void copies_arrive\(void\)/,/^}/s/fence_proxy_async\(\);/;/'
attention "no wait for products" products '/void products_wait\(void\)/,/^}/s/wg_wait<PENDING>/wg_wait<PENDING + 1>/'
attention "wrong swizzle" products 's/chunk & 7\) \^ \(row & 7\)/chunk \& 7) ^ (row \& 3)/'
attention "a row too many is loaded" products 's/row \+ i \* STEP < valid\);/row + i * STEP <= valid);/'
attention "a row too many is stored" products 's/if \(row < valid && chunk/if (row <= valid \&\& chunk/'
attention "no __syncwarp before rows are stored" products '/void store_rows\(/,/^}/s/__syncwarp\(\);//'
attention "no barrier before Q becomes the output" tensor '/The tensor cores may read this warp.s rows of Q/,/store_rows/s/__syncthreads\(\);//'
attention "bias off by one" tensor 's/lowest \+ e - shift \+ p\.bias_span - 1/lowest + e - shift + p.bias_span/'
attention "causal mask off by one" tensor 's/key \+ keys - 1 > query \+ tile\.shift/key + keys - 1 > query + tile.shift + 1/'
attention "window off by one" tensor 's/tile\.shift - key >= p\.window/tile.shift - key > p.window/'
attention "no __syncwarp in the diagonal sums" tensor '/x\[m\]\[2\], z\.y/,/diagonals lane/s/__syncwarp\(\);//'

echo "$tried mutants, $missed not found"
[ $missed -eq 0 ]
