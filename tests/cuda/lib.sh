# Shared by the scripts of this folder: tests/cli/lib.sh, and
#   $programs    the folder of the programs that test the emulator
#   $kind        the kind of build: plain, asan or check
# Skips the whole script if the build has no emulated device.
. "$(dirname "$0")/../cli/lib.sh"
programs=$build/tests/cuda/programs
if [ ! -x "$programs/faults" ]; then
    skip "$(basename "$0" .sh)" "this build has no emulated CUDA device: no CUDA headers, a card, or ThreadSanitizer"
    tally
    exit
fi
kind=$("$programs/faults" build)
# one_line: prints why the last captured program failed
one_line() {
    grep -h -m1 -E '== emulator: |ERROR: AddressSanitizer|runtime error' "$dir/err" "$dir/out" | head -n 1 | cut -c 1-110
}
