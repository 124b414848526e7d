/* Functions for lists of ids, and fsdp_text_free(), which frees texts that the library returns. */
#include <fsdp/text.h>

#include <string.h>

#include "src/base/alloc.h"

fsdp_status fsdp_token_list_set(fsdp_token_list *list, const int32_t *ids, size_t count)
{
    if (!FSDP_GROW(list->ids, list->cap, count))
        return FSDP_ERR_NOMEM;
    if (count)
        memcpy(list->ids, ids, count * sizeof *ids);
    list->len = count;
    return FSDP_OK;
}

void fsdp_token_list_fini(fsdp_token_list *list)
{
    fsdp_free(list->ids);
    *list = (fsdp_token_list){0};
}

void fsdp_text_free(char *text)
{
    fsdp_free(text);
}
