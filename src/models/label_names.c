/* See label_names.h. */
#include "src/models/label_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/json.h"

void fsdp_label_names_free(char **names, int64_t n)
{
    for (int64_t i = 0; names && i < n; i++)
        fsdp_free(names[i]);
    fsdp_free(names);
}

/* Convert `key`, a key of id2label, to the index of a class. Return -1 if `key` is not an integer
 * from 0 to n - 1. */
static int64_t class_of_key(const char *key, int64_t n)
{
    char *end;
    const long long class = strtoll(key, &end, 10);
    return end == key || *end || class < 0 || class >= n ? -1 : (int64_t) class;
}

fsdp_status fsdp_label_names_read(const char *path, int64_t n, char ***names)
{
    fsdp_json *doc;
    *names = NULL;
    FSDP_TRY(fsdp_json_read(path, &doc));
    const fsdp_json_node map = fsdp_json_find(fsdp_json_root(doc), "id2label");
    fsdp_status status = FSDP_OK;
    char **read = NULL;
    if (n > 0 && (int64_t)fsdp_json_len(map) == n && fsdp_json_kind_of(map) == FSDP_JSON_OBJECT &&
        !(read = fsdp_calloc((size_t)n, sizeof *read)))
        status = FSDP_ERR_NOMEM;
    for (fsdp_json_node v = fsdp_json_first(map); read && v.value && status == FSDP_OK;
         v = fsdp_json_next(v)) {
        const int64_t class = class_of_key(v.key, n);
        const char *name;
        if (class < 0 || read[class] || fsdp_json_kind_of(v) != FSDP_JSON_STRING)
            continue;
        status = fsdp_json_get_str(v, NULL, &name);
        if (status == FSDP_OK && !(read[class] = fsdp_strdup(name)))
            status = FSDP_ERR_NOMEM;
    }
    fsdp_json_destroy(doc);
    if (status == FSDP_OK)
        *names = read;
    else
        fsdp_label_names_free(read, n);
    return status;
}

fsdp_status fsdp_label_names_copy(const char *const *names, int64_t n, char ***out)
{
    char **copy = fsdp_calloc((size_t)n, sizeof *copy);
    if (!copy)
        return FSDP_ERR_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        if ((copy[i] = fsdp_strdup(names[i])))
            continue;
        fsdp_label_names_free(copy, n);
        return FSDP_ERR_NOMEM;
    }
    *out = copy;
    return FSDP_OK;
}

fsdp_status fsdp_label_names_write(const char *path, char *const *names, int64_t n)
{
    fsdp_json *doc;
    char id[24];
    FSDP_TRY(fsdp_json_read(path, &doc));
    const fsdp_json_node by_id = fsdp_json_set_object(fsdp_json_root(doc), "id2label");
    const fsdp_json_node by_name = fsdp_json_set_object(fsdp_json_root(doc), "label2id");
    for (int64_t i = 0; i < n; i++) {
        snprintf(id, sizeof id, "%lld", (long long)i);
        fsdp_json_set_str(by_id, id, names[i]);
        fsdp_json_set_i64(by_name, names[i], i);
    }
    fsdp_status status = fsdp_json_write(doc, FSDP_JSON_PRETTY, path);
    fsdp_json_destroy(doc);
    return status;
}
