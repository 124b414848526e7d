#!/bin/sh
# tools/call_cycles.sh, which lint uses to find files that call each other in a circle, on a
# source tree made here.
. "$(dirname "$0")/lib.sh"
mkdir tools
cp "$root/tools/call_cycles.sh" tools/
: >tools/call_cycles.allowed
cycles() { capture sh tools/call_cycles.sh objects; }
# file PATH TEXT: writes the source and compiles it
file() {
    mkdir -p "$(dirname "$1")" "objects/$(dirname "$1")"
    printf '%s\n' "$2" >"$1.c"
    ${CC:-cc} -c -o "objects/$1.o" "$1.c"
}

file src/a/top 'void fsdp_mid(void); void fsdp_top(void); void fsdp_top(void) { fsdp_mid(); }'
file src/a/mid 'void fsdp_low(void); void fsdp_mid(void); void fsdp_mid(void) { fsdp_low(); }'
file src/a/low 'void fsdp_low(void); void fsdp_low(void) {}'
cycles
expect "a tree that calls downwards is clean" 0

# A circle through another file, and one through an address in a table.
file src/a/low 'void fsdp_top(void); void fsdp_low(void); void (*const fsdp_calls[])(void) = {fsdp_top}; void fsdp_low(void) {}'
cycles
expect "a circle of three files is an error" 1 'src/a call each other in a circle:( (top|mid|low)){3}' out
check "each call of it is named" grep -q 'low -> top: fsdp_top' "$dir/out"

echo 'a: top mid low # it is old' >tools/call_cycles.allowed
cycles
expect "a listed circle is accepted" 0
echo 'a: top mid low #' >tools/call_cycles.allowed
cycles
expect "a listed circle has a reason" 1 'no reason is given' out
echo 'a: top mid # it is old' >tools/call_cycles.allowed
cycles
expect "a circle that has grown is an error" 1 'in a circle' out

# Calls between folders of different layers are not circles here: other checks cover rows of folders.
file src/b/low 'void fsdp_top(void); void fsdp_low(void); void fsdp_low(void) { fsdp_top(); }'
rm -f src/a/low.c objects/src/a/low.o
printf '' >tools/call_cycles.allowed
cycles
expect "folders are looked at one by one" 0
echo 'a: top mid low # it is old' >tools/call_cycles.allowed
cycles
expect "a listed circle that is gone is an error" 1 'no such circle any more' out

# An object whose source was removed is ignored.
file src/a/low 'void fsdp_top(void); void fsdp_lowest(void); void fsdp_lowest(void) { fsdp_top(); }'
file src/a/mid 'void fsdp_lowest(void); void fsdp_mid(void); void fsdp_mid(void) { fsdp_lowest(); }'
: >tools/call_cycles.allowed
cycles
expect "the circle is back" 1 'in a circle' out
rm src/a/low.c
cycles
expect "objects without a source are left out" 0

# Folders of one layer.
rm -rf src objects
file src/a/top 'void fsdp_low(void); void fsdp_top(void); void fsdp_top(void) { fsdp_low(); }'
file src/a/room/low 'void fsdp_low(void); void fsdp_low(void) {}'
: >tools/call_cycles.allowed
cycles
expect "a layer may call the folders in it" 0
file src/a/more 'void fsdp_more(void); void fsdp_more(void) {}'
file src/a/room/low 'void fsdp_more(void); void fsdp_low(void); void fsdp_low(void) { fsdp_more(); }'
cycles
expect "a circle of folders is an error" 1 'folders of src/a call each other in a circle:( (a|room)){2}' out
check "each call of it is named" grep -q 'room -> a: fsdp_more of more in low' "$dir/out"
echo 'folders of a: a room # it is old' >tools/call_cycles.allowed
cycles
expect "a listed circle of folders is accepted" 0

capture sh tools/call_cycles.sh elsewhere
expect "without objects it says what to run" 2 'make BUILD=elsewhere lib'
tally
