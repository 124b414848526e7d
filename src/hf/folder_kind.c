/* See folder_kind.h. The kind of a folder is recognized by the names of its files. A file
 * trainer_state.json is also recognized by its content, because both `fsdp train` and
 * transformers' Trainer write a file of this name. */
#include "src/hf/folder_kind.h"

#include <stdio.h>
#include <string.h>

#include <fsdp/hf.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/hf/rank_shards.h"

static const char trainer_state[] = "trainer_state.json";

/* ---- files in a folder ----------------------------------------------------------------------- */

static bool has_entry(const char *dir, const char *name)
{
    char *path = fsdp_path_join(dir, name);
    const bool is_there = path && fsdp_path_exists(path);
    fsdp_free(path);
    return is_there;
}

/* Return the first name in `dir` that begins with `begin` and ends with `end`, or NULL if there is
 * none. The caller owns the name. */
static char *find_name(const char *dir, const char *begin, const char *end)
{
    char **names, *found = NULL;
    size_t n;
    if (fsdp_directory_list(dir, &names, &n) != FSDP_OK)
        return NULL;
    for (size_t i = 0; i < n && !found; i++)
        if (strncmp(names[i], begin, strlen(begin)) == 0 && fsdp_ends_with(names[i], end))
            found = fsdp_strdup(names[i]);
    fsdp_free(names);
    return found;
}

/* Read the JSON document `dir`/`name`. Return NULL if it cannot be read. */
static fsdp_json *read_document(const char *dir, const char *name)
{
    fsdp_json *doc = NULL;
    char *path = fsdp_path_join(dir, name);
    if (path && fsdp_path_is_file(path) && fsdp_json_read(path, &doc) != FSDP_OK)
        doc = NULL;
    fsdp_free(path);
    return doc;
}

/* Return a copy of the string `key` in the document's object `object` (NULL: in the root object).
 * Return NULL if there is no such string or if it is empty. The caller owns the copy. */
static char *text_of(fsdp_json *doc, const char *object, const char *key)
{
    fsdp_json_node at = fsdp_json_root(doc);
    const char *text;
    if (object)
        at = fsdp_json_find(at, object);
    if (fsdp_json_kind_of(fsdp_json_find(at, key)) != FSDP_JSON_STRING ||
        fsdp_json_get_str(at, key, &text) != FSDP_OK || !*text)
        return NULL;
    return fsdp_strdup(text);
}

/* ---- adapters and other frameworks ----------------------------------------------------------- */

static fsdp_status explain_adapter(const char *dir)
{
    if (!has_entry(dir, "adapter_config.json") && !has_entry(dir, "adapter_model.safetensors") &&
        !has_entry(dir, "adapter_model.bin"))
        return FSDP_OK;
    fsdp_json *doc = read_document(dir, "adapter_config.json");
    char *base = doc ? text_of(doc, NULL, "base_model_name_or_path") : NULL;
    fsdp_status status = fsdp_error(
        FSDP_ERR_INVALID,
        "%s: an adapter of PEFT%s%s, not a whole model. Merge it into its model first: fsdp "
        "checkpoint merge-adapter %s NEW_DIR",
        dir, base ? " for " : "", base ? base : "", dir);
    fsdp_free(base);
    fsdp_json_destroy(doc);
    return status;
}

static const struct {
    const char *begin, *end; /* how the name of a file of this framework begins and ends */
    const char *of, *how;
} frameworks[] = {
    {"tf_model", ".h5", "TensorFlow",
     "from_pretrained(DIR, from_tf=True).save_pretrained(NEW_DIR)"},
    {"model.ckpt", ".index", "TensorFlow",
     "from_pretrained(DIR, from_tf=True).save_pretrained(NEW_DIR)"},
    {"flax_model", ".msgpack", "Flax",
     "from_pretrained(DIR, from_flax=True).save_pretrained(NEW_DIR)"},
    {"", ".gguf", "llama.cpp", "from_pretrained(DIR, gguf_file=FILE).save_pretrained(NEW_DIR)"},
    {"", ".onnx", "ONNX", "from_pretrained(NAME).save_pretrained(NEW_DIR) of the PyTorch model"},
    {"rust_model", ".ot", "rust-bert",
     "from_pretrained(NAME).save_pretrained(NEW_DIR) of the PyTorch model"},
};

static fsdp_status explain_framework(const char *dir)
{
    for (size_t i = 0; i < FSDP_LENGTH(frameworks); i++) {
        char *name = find_name(dir, frameworks[i].begin, frameworks[i].end);
        if (!name)
            continue;
        fsdp_status status =
            fsdp_error(FSDP_ERR_INVALID,
                       "%s: it has weights of %s (%s), but neither safetensors nor "
                       "pytorch_model.bin. In transformers: %s",
                       dir, frameworks[i].of, name, frameworks[i].how);
        fsdp_free(name);
        return status;
    }
    return FSDP_OK;
}

static fsdp_status explain_deepspeed(const char *dir)
{
    if (!has_entry(dir, "zero_to_fp32.py"))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: a checkpoint of DeepSpeed. Make weights of it first: python "
                      "%s/zero_to_fp32.py %s NEW_DIR --safe_serialization",
                      dir, dir, dir);
}

const char *const fsdp_folder_weights[] = {"model.safetensors", "model.safetensors.index.json",
                                           "pytorch_model.bin", "pytorch_model.bin.index.json",
                                           "lit_model.pth",     NULL};

bool fsdp_folder_has_weights(const char *dir)
{
    for (const char *const *name = fsdp_folder_weights; *name; name++)
        if (has_entry(dir, *name))
            return true;
    return false;
}

fsdp_status fsdp_folder_explain_foreign(const char *dir)
{
    if (fsdp_folder_has_weights(dir))
        return FSDP_OK;
    FSDP_TRY(explain_adapter(dir));
    FSDP_TRY(explain_deepspeed(dir));
    return explain_framework(dir);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Return the name of a file or folder in `dir` from which `fsdp checkpoint convert` can read a
 * model, or NULL if there is none. "" means `dir` itself. The caller owns the name. */
static char *find_part(const char *dir)
{
    static const char *const parts[] = {"pytorch_model_fsdp_0", "pytorch_model_0",
                                        "model_state_dict.pt", "pytorch_model_fsdp.bin"};
    if (has_entry(dir, ".metadata"))
        return fsdp_strdup("");
    for (size_t i = 0; i < FSDP_LENGTH(parts); i++)
        if (has_entry(dir, parts[i]))
            return fsdp_strdup(parts[i]);
    return NULL;
}

/* Find out which program wrote trainer_state.json in `dir`. Set *is_own to true if `fsdp train`
 * wrote it: the file then contains a configuration. Set *is_trainers to true if transformers wrote
 * it: the file then contains global_step, but no configuration. Set *model to the model in the
 * configuration, or to NULL if there is none. The caller owns *model. */
static void read_kind(const char *dir, bool *is_own, bool *is_trainers, char **model)
{
    fsdp_json *doc = read_document(dir, trainer_state);
    *is_own = *is_trainers = false;
    *model = NULL;
    if (!doc)
        return;
    fsdp_json_node root = fsdp_json_root(doc);
    *is_own = fsdp_json_kind_of(fsdp_json_find(root, "configuration")) == FSDP_JSON_OBJECT;
    *is_trainers = !*is_own && fsdp_json_has(root, "global_step");
    if (*is_own)
        *model = text_of(doc, "configuration", "model");
    fsdp_json_destroy(doc);
}

static fsdp_status refuse_checkpoint(const char *dir, const char *what, const char *part,
                                     const char *model)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: %s, not the folder of a model. Make one of it: fsdp checkpoint convert "
                      "%s%s%s NEW_DIR --format hf --model %s",
                      dir, what, dir, *part ? "/" : "", part, model ? model : "MODEL");
}

static fsdp_status refuse_without_weights(const char *dir, const char *what)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: %s, not the folder of a model, and without weights that can be made "
                      "one: neither .metadata, pytorch_model_fsdp_0 nor model_state_dict.pt",
                      dir, what);
}

static fsdp_status explain_checkpoint(const char *dir)
{
    bool is_own, is_trainers;
    char *model, *part = find_part(dir);
    read_kind(dir, &is_own, &is_trainers, &model);
    const bool is_accelerates =
        has_entry(dir, "random_states_0.pkl") || (part && strncmp(part, "pytorch_model", 13) == 0);
    const char *what = is_own           ? "a checkpoint of 'fsdp train'"
                       : is_trainers    ? "a checkpoint of transformers' Trainer"
                       : is_accelerates ? "a checkpoint of Accelerate"
                       : part && !*part ? "a checkpoint of torch.distributed.checkpoint"
                       : part           ? "a checkpoint"
                                        : NULL;
    fsdp_status status = !what || (!part && fsdp_folder_has_weights(dir)) ? FSDP_OK
                         : part ? refuse_checkpoint(dir, what, part, model)
                                : refuse_without_weights(dir, what);
    fsdp_free(part);
    fsdp_free(model);
    return status;
}

/* Return true if `name` is a file without weights that training scripts write next to weights, such
 * as the state of the optimizer. */
static bool is_other_state(const char *name)
{
    static const char *const begins[] = {"optim",   "scheduler", "training_args",
                                         "scaler",  "rng_state", "random_states",
                                         "sampler", "tokenizer"};
    for (size_t i = 0; i < FSDP_LENGTH(begins); i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static bool is_weights_name(const char *name)
{
    static const char *const ends[] = {".pt", ".pth", ".ckpt", ".bin", ".safetensors"};
    for (size_t i = 0; i < FSDP_LENGTH(ends); i++)
        if (fsdp_ends_with(name, ends[i]))
            return !is_other_state(name);
    return false;
}

static fsdp_status refuse_file(const char *dir, const char *name)
{
    const bool is_shard =
        strstr(name, "-of-") && strchr("mp", name[0]); /* model-... or pytorch_model-... */
    if (!is_shard)
        return refuse_checkpoint(dir, "a folder with files of weights", name, NULL);
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "%s: no weights there but %s, one of several files, whose index "
                      "(%s.index.json) is missing: get it, or the model again",
                      dir, name,
                      fsdp_ends_with(name, ".bin") ? "pytorch_model.bin" : "model.safetensors");
}

/* Return an error if the folder has weights under names other than those in fsdp_folder_weights.
 * The message says how to make a model's folder from them, or which file is missing. */
static fsdp_status explain_files(const char *dir)
{
    char **names;
    size_t n;
    FSDP_TRY(fsdp_directory_list(dir, &names, &n));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < n && status == FSDP_OK; i++)
        if (is_weights_name(names[i]))
            status = refuse_file(dir, names[i]);
    fsdp_free(names);
    return status;
}

static fsdp_status explain_no_config(const char *dir)
{
    if (!fsdp_folder_has_weights(dir) || has_entry(dir, "config.json"))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: weights without config.json, which says what model they are of: copy "
                      "config.json and the tokenizer's files of that model into it",
                      dir);
}

static fsdp_status explain_around(const char *dir)
{
    char *name = find_name(dir, "checkpoint", "");
    char *inner = name ? fsdp_path_join(dir, name) : NULL;
    fsdp_status status = FSDP_OK;
    if (inner && fsdp_path_is_directory(inner))
        status = fsdp_error(FSDP_ERR_INVALID,
                            "%s: a folder around checkpoints (%s), not the folder of a model. Make "
                            "one of the one that you want: fsdp checkpoint convert %s NEW_DIR "
                            "--format hf --model MODEL",
                            dir, name, inner);
    fsdp_free(inner);
    fsdp_free(name);
    return status;
}

fsdp_status fsdp_folder_explain(const char *dir)
{
    FSDP_TRY(fsdp_folder_explain_foreign(dir));
    FSDP_TRY(explain_checkpoint(dir));
    FSDP_TRY(explain_no_config(dir));
    FSDP_TRY(fsdp_shard_refuse_folder(dir));
    FSDP_TRY(explain_files(dir));
    return explain_around(dir);
}

/* ---- the model of a run ---------------------------------------------------------------------- */

fsdp_status fsdp_folder_model_of_run(const char *path, char **model)
{
    bool is_own, is_trainers;
    *model = NULL;
    if (fsdp_path_is_directory(path))
        read_kind(path, &is_own, &is_trainers, model);
    if (*model)
        return FSDP_OK;
    char *parent = fsdp_path_parent(path); /* the checkpoint, if `path` is a file or folder in it */
    if (!parent)
        return FSDP_ERR_NOMEM;
    read_kind(parent, &is_own, &is_trainers, model);
    fsdp_free(parent);
    return FSDP_OK;
}
