#!/bin/sh
# examples/embed: training inside a program of its own. The program is short, prints only its own
# line, and has the same numbers on any ranks.
# usage: FSDP_BUILD=build tests/cli/test_embed.sh
. "$(dirname "$0")/lib.sh"

for ranks in 1 2 4; do
    capture "$build/examples/embed" $ranks
    expect "it_trains_on_${ranks}_ranks" 0 '^loss of the last batch: 0\.00[0-9]*$' out
    check "and_prints_nothing_else_on_${ranks}_ranks" [ "$(wc -l <out)" -eq 1 -a ! -s err ]
    cp out loss$ranks
done
check two_ranks_have_the_loss_of_one cmp loss1 loss2
check four_ranks_have_the_loss_of_one cmp loss1 loss4
capture "$build/examples/embed" 3
expect other_numbers_of_ranks_are_refused 2 'usage: embed'
# A task of mpirun trains on threads, too.
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 capture "$build/examples/embed" 2
expect a_task_of_mpi_trains_on_threads 0 '^loss of the last batch' out
check the_example_is_short [ "$(wc -l <"$root/examples/embed.c")" -lt 120 ]
check the_library_does_not_call_mpi [ -z "$(nm "$build/libfsdp.a" 2>/dev/null | grep ' U MPI_')" ]
tally
