/* See file_names.h. */
#include "src/data/files/file_names.h"

#include <string.h>
#include <strings.h>

#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"

static const struct {
    const char *ending;
    fsdp_name_kind kind;
} endings[] = {
    {".jsonl", FSDP_NAME_JSON},    {".json", FSDP_NAME_JSON},    {".ndjson", FSDP_NAME_JSON},
    {".csv", FSDP_NAME_CSV},       {".tsv", FSDP_NAME_CSV},      {".tab", FSDP_NAME_CSV},
    {".txt", FSDP_NAME_TEXT},      {".text", FSDP_NAME_TEXT},    {".raw", FSDP_NAME_TEXT},
    {".md", FSDP_NAME_TEXT},       {".tokens", FSDP_NAME_TEXT},  {".arrow", FSDP_NAME_ARROW},
    {".feather", FSDP_NAME_ARROW}, {".parquet", FSDP_NAME_ARROW}};

/* Return true if the first `length` bytes of `name` end with `ending` and are longer than it. */
static bool ends_with(const char *name, size_t length, const char *ending)
{
    const size_t n = strlen(ending);
    return length > n && strncasecmp(name + length - n, ending, n) == 0;
}

/* Return the length of a name without an ending of a compressed file. */
static size_t length_of(const char *name)
{
    static const char *const compressed[] = {".gz", ".zst", ".zstd"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < FSDP_LENGTH(compressed); i++)
        if (ends_with(name, length, compressed[i]))
            return length - strlen(compressed[i]);
    return length;
}

bool fsdp_name_is_compressed(const char *path)
{
    return length_of(path) < strlen(path);
}

bool fsdp_name_ends_with(const char *path, const char *ending)
{
    const char *name = fsdp_path_name(path);
    return ends_with(name, length_of(name), ending);
}

fsdp_name_kind fsdp_name_kind_of(const char *path)
{
    for (size_t i = 0; i < FSDP_LENGTH(endings); i++)
        if (fsdp_name_ends_with(path, endings[i].ending))
            return endings[i].kind;
    return FSDP_NAME_UNKNOWN;
}

bool fsdp_name_is_metadata(const char *name)
{
    static const char *const names[] = {"config.json",
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "trainer_state.json",
                                        "state.json",
                                        "dataset_dict.json",
                                        "dataset_info.json",
                                        "dataset_infos.json",
                                        "README.md",
                                        "README.txt"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return fsdp_ends_with(name, ".index.json");
}
