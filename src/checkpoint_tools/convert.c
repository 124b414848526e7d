/* Converts a checkpoint. Checks that the target may be written, selects the items, and calls the
 * writer of the target's format. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/checkpoint_tools/apart.h"
#include "src/checkpoint_tools/convert_internal.h"
#include "src/hf/stale_files.h"
#include "src/tensor/device.h"

/* ---- choosing the format, and checking the target -------------------------------------------- */

fsdp_convert_format fsdp_convert_format_of(const fsdp_source *from, const char *to,
                                           fsdp_convert_format wanted)
{
    if (wanted != FSDP_CONVERT_AUTO)
        return wanted;
    if (fsdp_ends_with(to, ".pt") || fsdp_ends_with(to, ".pth") || fsdp_ends_with(to, ".bin"))
        return FSDP_CONVERT_TORCH;
    if (fsdp_ends_with(to, ".safetensors"))
        return FSDP_CONVERT_SAFETENSORS;
    return fsdp_source_format_of(from) == FSDP_SOURCE_TORCH ? FSDP_CONVERT_DCP : FSDP_CONVERT_HF;
}

/* Check that the target is not the source, does not contain the source, and is not a part of the
 * source. */
static fsdp_status check_apart(const fsdp_source *source, const char *to)
{
    const char *path = fsdp_source_path(source);
    bool is_part = false;
    FSDP_TRY(fsdp_check_not_replaced(to, path, "converted"));
    char *target = realpath(to, NULL);
    const fsdp_status status =
        target ? fsdp_source_has_file(source, target, &is_part) : FSDP_OK; /* NULL: a new target */
    free(target); /* realpath() allocated it, not fsdp_calloc() */
    FSDP_TRY(status);
    if (is_part)
        return fsdp_error(FSDP_ERR_INVALID, "%s: it is a part of what is converted: %s", to, path);
    return fsdp_check_apart(to, path, "converted");
}

static bool is_checkpoint_file(const char *name)
{
    return strcmp(name, ".metadata") == 0 || fsdp_ends_with(name, ".distcp") ||
           fsdp_ends_with(name, ".safetensors") || strncmp(name, "pytorch_model", 13) == 0;
}

/* Check that the folder `to`, which will be replaced, is empty or contains files of a model or of a
 * checkpoint. */
static fsdp_status check_directory(const char *to)
{
    char **names;
    size_t count;
    FSDP_TRY(fsdp_directory_list(to, &names, &count));
    bool is = count == 0;
    for (size_t i = 0; i < count && !is; i++)
        is = is_checkpoint_file(names[i]);
    fsdp_free(names);
    if (!is)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: a directory that holds no checkpoint is not "
                          "replaced",
                          to);
    return FSDP_OK;
}

static fsdp_status check_file(const fsdp_conversion *run)
{
    if (fsdp_path_is_directory(run->to))
        return fsdp_error(FSDP_ERR_INVALID, "%s: a directory is there", run->to);
    if (fsdp_path_is_file(run->to) && !run->options->overwrite)
        return fsdp_error(FSDP_ERR_INVALID, "%s: it exists, and would be overwritten", run->to);
    return FSDP_OK;
}

static fsdp_status check_target(const fsdp_conversion *run)
{
    FSDP_TRY(check_apart(run->source, run->to));
    if (run->result->format == FSDP_CONVERT_TORCH ||
        run->result->format == FSDP_CONVERT_SAFETENSORS)
        return check_file(run);
    if (run->options->overwrite && fsdp_path_is_directory(run->to)) {
        FSDP_TRY(check_directory(run->to));
        FSDP_TRY(fsdp_check_model_folder(run->to));
    }
    return fsdp_atomic_directory_check(run->to, run->options->overwrite ? FSDP_EXISTING_UPDATE
                                                                        : FSDP_EXISTING_REFUSE);
}

static fsdp_status note_replaced(const fsdp_conversion *run)
{
    if (!run->replaced.len || run->replaced.failed)
        return FSDP_OK;
    return fsdp_conversion_note(run, fsdp_strdup_printf("removed with the model that was in %s: %s",
                                                        run->to, run->replaced.data));
}

/* ---- converting ------------------------------------------------------------------------------ */

static fsdp_status note_too_large(const fsdp_conversion *run)
{
    return run->too_large.n ? fsdp_conversion_note(run, fsdp_too_large_note(&run->too_large))
                            : FSDP_OK;
}

static fsdp_status write_target(fsdp_conversion *run)
{
    switch (run->result->format) {
    case FSDP_CONVERT_TORCH:
        return fsdp_convert_to_torch(run);
    case FSDP_CONVERT_SAFETENSORS:
        return fsdp_convert_to_safetensors(run);
    case FSDP_CONVERT_DCP:
        return fsdp_convert_to_dcp(run);
    default:
        return fsdp_convert_to_hf(run);
    }
}

static fsdp_status convert(fsdp_conversion *run)
{
    run->result->format = fsdp_convert_format_of(run->source, run->to, run->options->format);
    FSDP_TRY(check_target(run));
    FSDP_TRY(fsdp_conversion_select(run));
    FSDP_TRY(fsdp_device_create(&(fsdp_device_options){.name = "cpu"}, &run->device));
    run->raw = fsdp_calloc(1, FSDP_CONVERT_PIECE_BYTES);
    run->piece = fsdp_calloc(1, FSDP_CONVERT_PIECE_BYTES);
    if (!run->raw || !run->piece)
        return FSDP_ERR_NOMEM;
    fsdp_conversion_report_progress(run);
    FSDP_TRY(write_target(run));
    FSDP_TRY(note_replaced(run));
    return note_too_large(run);
}

fsdp_status fsdp_convert(fsdp_source *from, const char *to, const fsdp_convert_options *options,
                         fsdp_convert_result *result)
{
    fsdp_conversion run = {.source = from, .to = to, .options = options, .result = result};
    *result = (fsdp_convert_result){0};
    fsdp_status status = convert(&run);
    fsdp_device_destroy(run.device);
    fsdp_selection_fini(&run.selection);
    fsdp_free(run.items);
    fsdp_free(run.raw);
    fsdp_free(run.piece);
    fsdp_str_fini(&run.replaced);
    return status;
}
