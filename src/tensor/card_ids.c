/* Restricts the cards that a process may use: checks Accelerate's gpu_ids, and sets the variable
 * CUDA_VISIBLE_DEVICES. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/tensor/cards.h"

static bool is_all(const char *const *ids, size_t n)
{
    return n == 1 && strcmp(ids[0], "all") == 0;
}

fsdp_status fsdp_cards_check_ids(const char *const *ids, size_t n)
{
    for (size_t i = 0; i < n && !is_all(ids, n); i++) {
        const bool is_number = *ids[i] && strspn(ids[i], "0123456789") == strlen(ids[i]);
        const bool is_uuid = strncmp(ids[i], "GPU-", 4) == 0 || strncmp(ids[i], "MIG-", 4) == 0;
        if (!is_number && !is_uuid)
            return fsdp_error(FSDP_ERR_INVALID,
                              "'%.100s' is not allowed; it takes all, or numbers of cards such as "
                              "0,1",
                              ids[i]);
        for (size_t k = 0; k < i; k++)
            if (strcmp(ids[k], ids[i]) == 0)
                return fsdp_error(FSDP_ERR_INVALID, "card %.100s is given twice", ids[i]);
    }
    return FSDP_OK;
}

fsdp_status fsdp_cards_set_visible(const char *const *ids, size_t n)
{
    fsdp_str text = {0};
    if (n == 0 || is_all(ids, n))
        return FSDP_OK;
    for (size_t i = 0; i < n; i++)
        fsdp_str_printf(&text, "%s%s", i ? "," : "", ids[i]);
    fsdp_status status = text.failed || !text.data ? fsdp_error_nomem() : FSDP_OK;
    if (status == FSDP_OK && setenv("CUDA_VISIBLE_DEVICES", text.data, 1) != 0)
        status = fsdp_error(FSDP_ERR_NOMEM, "CUDA_VISIBLE_DEVICES: %s", strerror(errno));
    fsdp_str_fini(&text);
    return status;
}
