/* What is common to all datasets: finding the file and its kind, checks, dispatch. */
#include "src/data/dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"

struct fsdp_dataset {
    const fsdp_dataset_ops *ops;
    void *self;
    int64_t len;
};

/* ---- opening ---- */

/* `path`, or the WikiHow file in that folder; owned by the caller. */
static fsdp_status find_file(const char *path, char **file)
{
    static const char *const names[] = {"wikihowAll.csv", "wikihowSep.csv"};
    if (!fsdp_path_is_directory(path)) {
        *file = fsdp_strdup(path);
        return *file ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        char *candidate = fsdp_path_join(path, names[i]);
        if (!candidate)
            return FSDP_ERR_NOMEM;
        if (fsdp_path_is_file(candidate)) {
            *file = candidate;
            return FSDP_OK;
        }
        fsdp_free(candidate);
    }
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "%s: holds neither wikihowAll.csv nor wikihowSep.csv; name a file in it",
                      path);
}

static bool ends_with(const char *text, const char *ending)
{
    size_t length = strlen(text), n = strlen(ending);
    return length >= n && strcasecmp(text + length - n, ending) == 0;
}

/* By name, else by the first byte that is no white space: JSON lines begin with a brace. */
static fsdp_status is_jsonl(const char *path, bool *jsonl)
{
    *jsonl = ends_with(path, ".jsonl") || ends_with(path, ".json") || ends_with(path, ".ndjson");
    if (*jsonl || ends_with(path, ".csv"))
        return FSDP_OK;
    FILE *file = fopen(path, "rb");
    if (!file)
        return fsdp_error(errno == ENOENT ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "%s: %s", path,
                          strerror(errno));
    int byte;
    do
        byte = fgetc(file);
    while (byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r');
    *jsonl = byte == '{';
    fclose(file);
    return FSDP_OK;
}

static fsdp_status complete_options(const fsdp_dataset_options *given, fsdp_dataset_options *full)
{
    fsdp_dataset_options o = given ? *given : (fsdp_dataset_options){0};
    if (o.max_source_length < 0 || o.max_target_length < 0 || o.max_samples < 0 || o.vocab_size < 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "dataset: negative option (max source length %d, max target length %d, "
                          "max samples %" PRId64 ", vocab size %" PRId64 ")",
                          o.max_source_length, o.max_target_length, o.max_samples, o.vocab_size);
    if (!o.max_source_length)
        o.max_source_length = 512;
    if (!o.max_target_length)
        o.max_target_length = 150;
    if (!o.max_samples)
        o.max_samples = INT64_MAX;
    if (!o.vocab_size)
        o.vocab_size = o.tokenizer ? fsdp_tokenizer_vocab_size(o.tokenizer) : INT32_MAX;
    if (!o.source_prefix)
        o.source_prefix = "";
    if (!o.source_column)
        o.source_column = "text";
    if (!o.target_column)
        o.target_column = "headline";
    *full = o;
    return FSDP_OK;
}

fsdp_status fsdp_dataset_open(const char *path, const fsdp_dataset_options *options,
                              fsdp_dataset **out)
{
    fsdp_dataset_options full;
    FSDP_TRY(complete_options(options, &full));
    char *file = NULL;
    FSDP_TRY(find_file(path, &file));
    bool jsonl = false;
    fsdp_status status = is_jsonl(file, &jsonl);
    if (status == FSDP_OK)
        status = jsonl ? fsdp_jsonl_dataset_open(file, &full, out)
                       : fsdp_csv_dataset_open(file, &full, out);
    fsdp_free(file);
    return status;
}

fsdp_status fsdp_dataset_create(const fsdp_dataset_ops *ops, void *self, fsdp_dataset **out)
{
    fsdp_dataset *dataset = fsdp_calloc(1, sizeof *dataset);
    if (!dataset)
        return FSDP_ERR_NOMEM;
    *dataset = (fsdp_dataset){.ops = ops, .self = self, .len = ops->len(self)};
    *out = dataset;
    return FSDP_OK;
}

void fsdp_dataset_close(fsdp_dataset *dataset)
{
    if (!dataset)
        return;
    if (dataset->ops->close)
        dataset->ops->close(dataset->self);
    fsdp_free(dataset);
}

/* ---- examples ---- */

int64_t fsdp_dataset_len(const fsdp_dataset *dataset)
{
    return dataset->len;
}

static fsdp_status check_index(const fsdp_dataset *dataset, int64_t index)
{
    if (index >= 0 && index < dataset->len)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "example %" PRId64 " of a dataset of %" PRId64, index,
                      dataset->len);
}

fsdp_status fsdp_dataset_get(const fsdp_dataset *dataset, int64_t index, fsdp_example *example)
{
    FSDP_TRY(check_index(dataset, index));
    return dataset->ops->get(dataset->self, index, example);
}

fsdp_status fsdp_dataset_texts(const fsdp_dataset *dataset, int64_t index, char **source,
                               char **target)
{
    FSDP_TRY(check_index(dataset, index));
    if (!dataset->ops->texts)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "this dataset has ids only, no texts");
    char *texts[2] = {NULL, NULL};
    FSDP_TRY(dataset->ops->texts(dataset->self, index, &texts[0], &texts[1]));
    if (source)
        *source = texts[0];
    else
        fsdp_text_free(texts[0]);
    if (target)
        *target = texts[1];
    else
        fsdp_text_free(texts[1]);
    return FSDP_OK;
}

void fsdp_example_fini(fsdp_example *example)
{
    fsdp_token_list_fini(&example->source);
    fsdp_token_list_fini(&example->labels);
}
