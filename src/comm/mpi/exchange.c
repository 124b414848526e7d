/* Posts failures of the exchange of messages; see exchange.h. */
#include "src/comm/mpi/exchange.h"

void fsdp_mpi_post_failure(const fsdp_mpi_progress *p, fsdp_status status)
{
    fsdp_comm_failure failure = {.rank = p->world.rank,
                                 .status = (int32_t)status,
                                 .kind = FSDP_FAILURE_OF_RANK,
                                 .at = fsdp_comm_place_get(&p->control->board[p->world.rank].at)};
    fsdp_comm_copy_text(failure.message, sizeof failure.message, fsdp_last_error());
    fsdp_comm_control_abort(p->control, p->world.rank, &failure);
}

void fsdp_mpi_give_up(fsdp_mpi_progress *p, fsdp_status status)
{
    p->is_failing = true;
    fsdp_mpi_post_failure(p, status);
}

void fsdp_mpi_break(fsdp_mpi_progress *p, const char *call, int code)
{
    p->is_broken = true;
    fsdp_mpi_give_up(p, fsdp_mpi_error(p->world.abi, call, code));
}
