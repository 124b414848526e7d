/* A stage that is a file. This file implements fsdp_stage_ops with the functions of
 * src/base/file_stage.h. */
#include "src/base/file_stage.h"
#include "src/tensor/offload.h"

static fsdp_status file_open(const char *where, void **impl)
{
    fsdp_file_stage *stage;
    FSDP_TRY(fsdp_file_stage_create(where, 0, &stage));
    *impl = stage;
    return FSDP_OK;
}

static void file_close(void *impl)
{
    fsdp_file_stage_destroy(impl);
}

static fsdp_status file_reserve(void *impl, uint64_t bytes)
{
    return fsdp_file_stage_reserve(impl, bytes);
}

static uint64_t file_in(void *impl, uint64_t at, void *data, size_t bytes, fsdp_event *after)
{
    return fsdp_file_stage_read(impl, at, data, bytes, after);
}

static uint64_t file_out(void *impl, uint64_t at, const void *data, size_t bytes, fsdp_event *after)
{
    return fsdp_file_stage_write(impl, at, data, bytes, after);
}

static fsdp_status file_wait(void *impl, uint64_t ticket)
{
    return fsdp_file_stage_wait(impl, ticket);
}

static fsdp_status file_peek(void *impl, uint64_t at, void *out, size_t bytes)
{
    return fsdp_file_stage_peek(impl, at, out, bytes);
}

const fsdp_stage_ops fsdp_stage_file = {.name = "file",
                                        .open = file_open,
                                        .close = file_close,
                                        .reserve = file_reserve,
                                        .stage_in = file_in,
                                        .stage_out = file_out,
                                        .wait = file_wait,
                                        .peek = file_peek};
