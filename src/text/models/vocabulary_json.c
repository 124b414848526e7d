/* See vocabulary_json.h. */
#include "src/text/models/vocabulary_json.h"

#include <string.h>

static fsdp_status add_entries(fsdp_vocabulary *vocabulary, fsdp_json_node object, const char *what)
{
    for (fsdp_json_node v = fsdp_json_first(object); v.value; v = fsdp_json_next(v)) {
        int64_t id;
        FSDP_TRY(fsdp_json_get_i64(v, NULL, 0, FSDP_TOKEN_ID_MAX, &id));
        fsdp_status status = fsdp_vocabulary_add(vocabulary, v.key, strlen(v.key), id);
        fsdp_error_context(status, "%s:%s%s", fsdp_json_name(object.doc), *what ? " " : "", what);
        if (status != FSDP_OK)
            return status;
    }
    return FSDP_OK;
}

fsdp_status fsdp_vocabulary_from_json(fsdp_json_node object, const char *what,
                                      fsdp_vocabulary **out)
{
    fsdp_vocabulary *vocabulary = NULL;
    fsdp_status status = fsdp_json_kind_of(object) == FSDP_JSON_OBJECT
                             ? fsdp_vocabulary_create(&vocabulary)
                             : fsdp_json_mismatch(object, NULL, "an object from text to id");
    if (status == FSDP_OK)
        status = add_entries(vocabulary, object, what);
    if (status != FSDP_OK) {
        fsdp_vocabulary_destroy(vocabulary);
        return status;
    }
    *out = vocabulary;
    return FSDP_OK;
}
