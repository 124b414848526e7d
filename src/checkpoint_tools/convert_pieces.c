/* Reads tensors in pieces and converts their dtype, for the writers of all formats. Also reports
 * notes and progress. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/checkpoint_tools/convert_internal.h"
#include "src/hf/stale_files.h"
#include "src/tensor/device.h"

static fsdp_status read_as(const fsdp_converted *item, uint64_t offset, void *out, size_t bytes)
{
    fsdp_conversion *run = item->run;
    const fsdp_safetensors_dtype *from =
        fsdp_safetensors_dtype_by_name(item->from->item->dtype_name);
    if (from == item->dtype)
        return fsdp_source_read(run->source, item->from->item, offset, out, bytes);
    const size_t from_width = (size_t)from->bits / 8, width = (size_t)item->dtype->bits / 8;
    const size_t most = FSDP_CONVERT_PIECE_BYTES / from_width;
    for (size_t done = 0, n; done < bytes; done += n * width) {
        n = (bytes - done) / width < most ? (bytes - done) / width : most;
        FSDP_TRY(fsdp_source_read(run->source, item->from->item,
                                  (offset + done) / width * from_width, run->raw, n * from_width));
        run->device->kernels->cast(run->device->context, (char *)out + done,
                                   (fsdp_dtype)item->dtype->fsdp_dtype, run->raw,
                                   (fsdp_dtype)from->fsdp_dtype, (int64_t)n);
        fsdp_too_large_count(&run->too_large, item->from->name, run->raw, from, (char *)out + done,
                             item->dtype, n);
    }
    return FSDP_OK;
}

fsdp_status fsdp_converted_read(const fsdp_converted *item, uint64_t offset, void *out,
                                size_t bytes)
{
    if (offset == 0)
        FSDP_TRY(fsdp_source_check(item->run->source, item->from->item));
    return read_as(item, offset, out, bytes);
}

fsdp_status fsdp_converted_stream(const fsdp_converted *item, fsdp_convert_write_fn *write,
                                  void *context)
{
    fsdp_conversion *run = item->run;
    for (int64_t at = 0, n; at < item->bytes; at += n) {
        n = item->bytes - at < FSDP_CONVERT_PIECE_BYTES ? item->bytes - at
                                                        : FSDP_CONVERT_PIECE_BYTES;
        FSDP_TRY(fsdp_converted_read(item, (uint64_t)at, run->piece, (size_t)n));
        FSDP_TRY(write(context, (uint64_t)at, run->piece, (size_t)n));
    }
    fsdp_conversion_step(run);
    return FSDP_OK;
}

void fsdp_conversion_report_progress(const fsdp_conversion *run)
{
    if (run->options->progress)
        run->options->progress(run->options->context, run->done, run->selection.n);
}

void fsdp_conversion_step(fsdp_conversion *run)
{
    run->done++;
    fsdp_conversion_report_progress(run);
}

fsdp_status fsdp_conversion_note(const fsdp_conversion *run, char *note)
{
    if (!note)
        return FSDP_ERR_NOMEM;
    if (run->options->note)
        run->options->note(note, run->options->context);
    fsdp_free(note);
    return FSDP_OK;
}

bool fsdp_conversion_drops(void *context, const char *old, const char *fresh, const char *name)
{
    fsdp_conversion *run = context;
    if (!fsdp_is_stale_model_file(NULL, old, fresh, name))
        return false;
    char *path = fsdp_path_join(fresh, name), *quoted = fsdp_strdup_printf("'%s'", name);
    const bool is_known = run->replaced.data && quoted && strstr(run->replaced.data, quoted);
    if (path && quoted && !fsdp_path_is_file(path) && !is_known)
        fsdp_str_printf(&run->replaced, "%s%s", run->replaced.len ? ", " : "", quoted);
    fsdp_free(path);
    fsdp_free(quoted);
    return true;
}
