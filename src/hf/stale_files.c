/* See stale_files.h. */
#include "src/hf/stale_files.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/hf/hf_dir.h"

enum {
    SHARD_DIGITS = 5 /* minimum number of digits, as in model-00001-of-00003.safetensors */
};

/* ---- names ----------------------------------------------------------------------------------- */

static const char *skip_digits(const char *at)
{
    return at + strspn(at, "0123456789");
}

bool fsdp_is_numbered_name(const char *name, const char *stem, const char *ending)
{
    const size_t n = strlen(stem);
    return strncmp(name, stem, n) == 0 && skip_digits(name + n) > name + n &&
           strcmp(skip_digits(name + n), ending) == 0;
}

/* Return true if the string `at` is "-00001-of-00003" (with any numbers) followed by `ending`. */
static bool is_shard(const char *at, const char *ending)
{
    const char *of = *at == '-' ? skip_digits(at + 1) : at;
    if (of - at < 1 + SHARD_DIGITS || strncmp(of, "-of-", 4) != 0)
        return false;
    const char *end = skip_digits(of + 4);
    return end - of >= 4 + SHARD_DIGITS && strcmp(end, ending) == 0;
}

bool fsdp_is_weights_name(const char *name)
{
    static const struct {
        const char *stem, *ending, *index;
    } formats[] = {{"model", ".safetensors", ".safetensors.index.json"},
                   {"pytorch_model", ".bin", ".bin.index.json"}};
    for (size_t i = 0; i < FSDP_LENGTH(formats); i++) {
        const size_t n = strlen(formats[i].stem);
        if (strncmp(name, formats[i].stem, n) != 0)
            continue;
        if (strcmp(name + n, formats[i].ending) == 0 || strcmp(name + n, formats[i].index) == 0 ||
            is_shard(name + n, formats[i].ending))
            return true;
    }
    return false;
}

/* Return true if `name` is a file that torch.distributed.checkpoint writes, or a file with the
 * checksums of such a file. */
static bool is_dcp_name(const char *name)
{
    const bool is_sums = strncmp(name, "__", 2) == 0 && fsdp_ends_with(name, ".crc32");
    return strcmp(name, ".metadata") == 0 || fsdp_ends_with(name, ".distcp") || is_sums;
}

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Return true if the first `length` bytes of `name` are the name of a folder that Accelerate's
 * save_state() writes, such as optimizer_0. */
static bool is_accelerate_folder(const char *name, size_t length)
{
    static const char *const stems[] = {"pytorch_model_fsdp_", "pytorch_model_", "optimizer_"};
    for (size_t i = 0; i < FSDP_LENGTH(stems); i++) {
        const size_t n = strlen(stems[i]);
        if (length > n && strncmp(name, stems[i], n) == 0 &&
            strspn(name + n, "0123456789") == length - n)
            return true;
    }
    return false;
}

static bool is_file_of_checkpoint(const char *name)
{
    static const char *const names[] = {
        "model_state_dict.pt", "optim_state_dict.pt",   "pytorch_model_fsdp.bin",
        "pytorch_model.bin",   "optimizer.bin",         "scheduler.bin",
        "scaler.pt",           "accelerator_state.json"};
    static const char *const numbered[][2] = {
        {"local_state_dict_rank", ".pt"}, {"random_states_", ".pkl"}, {"optimizer_", ".bin"},
        {"pytorch_model_fsdp_", ".bin"},  {"scheduler_", ".bin"},     {"pytorch_model_", ".bin"},
        {"custom_checkpoint_", ".pkl"}};
    if (is_one_of(name, names, FSDP_LENGTH(names)))
        return true;
    for (size_t i = 0; i < FSDP_LENGTH(numbered); i++)
        if (fsdp_is_numbered_name(name, numbered[i][0], numbered[i][1]))
            return true;
    return false;
}

/* ---- contents of folders --------------------------------------------------------------------- */

static bool has_tokenizer(const char *folder)
{
    char **names;
    size_t count;
    bool found = false;
    if (fsdp_directory_list(folder, &names, &count) != FSDP_OK)
        return false;
    for (size_t i = 0; i < count && !found; i++)
        found = fsdp_hf_dir_is_tokenizer_file(names[i]);
    fsdp_free(names);
    return found;
}

bool fsdp_has_trainer_state(const char *folder)
{
    fsdp_json *doc = NULL;
    char *path = fsdp_path_join(folder, "trainer_state.json");
    bool yes = path && fsdp_path_is_file(path) && fsdp_json_read(path, &doc) == FSDP_OK &&
               fsdp_json_has(fsdp_json_root(doc), "format");
    fsdp_json_destroy(doc);
    fsdp_free(path);
    return yes;
}

fsdp_status fsdp_check_model_folder(const char *folder)
{
    if (fsdp_has_trainer_state(folder))
        return fsdp_error(
            FSDP_ERR_INVALID,
            "%s: a checkpoint of 'fsdp train' is there, which a model does not replace; "
            "name another folder",
            folder);
    return FSDP_OK;
}

/* ---- stale files ----------------------------------------------------------------------------- */

bool fsdp_is_stale_dcp_file(void *context, const char *old, const char *fresh, const char *name)
{
    (void)context, (void)fresh;
    return is_dcp_name(name) ||
           (strcmp(name, "trainer_state.json") == 0 && fsdp_has_trainer_state(old));
}

/* Return true if `name` is a file of an adapter. If an old adapter stayed in the folder of a new
 * model, transformers would load it together with the model. */
static bool is_adapter_name(const char *name)
{
    return strcmp(name, "adapter_config.json") == 0 ||
           strcmp(name, "adapter_model.safetensors") == 0 || strcmp(name, "adapter_model.bin") == 0;
}

bool fsdp_is_stale_model_file(void *context, const char *old, const char *fresh, const char *name)
{
    if (fsdp_is_weights_name(name) || fsdp_is_stale_dcp_file(context, old, fresh, name) ||
        is_adapter_name(name))
        return true;
    if (strcmp(name, "generation_config.json") == 0)
        return fresh && fsdp_directory_has_file(fresh, "config.json");
    return fresh && fsdp_hf_dir_is_tokenizer_file(name) && has_tokenizer(fresh);
}

bool fsdp_is_stale_checkpoint_file(void *context, const char *old, const char *fresh,
                                   const char *name)
{
    const char *slash = strchr(name, '/');
    if (slash)
        return is_accelerate_folder(name, (size_t)(slash - name)) && is_dcp_name(slash + 1);
    return fsdp_is_stale_dcp_file(context, old, fresh, name) || is_file_of_checkpoint(name) ||
           is_accelerate_folder(name, strlen(name));
}

static bool holds_others(const char *folder, const char *below)
{
    char **names, *path = fsdp_path_join(folder, below);
    size_t count;
    bool found = !path || fsdp_directory_list(path, &names, &count) != FSDP_OK;
    fsdp_free(path);
    if (found)
        return true;
    for (size_t i = 0; i < count && !found; i++) {
        char *name = *below ? fsdp_path_join(below, names[i]) : fsdp_strdup(names[i]);
        path = name ? fsdp_path_join(folder, name) : NULL;
        found = !path || !fsdp_is_stale_checkpoint_file(NULL, folder, NULL, name) ||
                (fsdp_path_is_directory(path) && (*below || holds_others(folder, name)));
        fsdp_free(path);
        fsdp_free(name);
    }
    fsdp_free(names);
    return found;
}

bool fsdp_checkpoint_holds_others(const char *folder)
{
    return holds_others(folder, "");
}
