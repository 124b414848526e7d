/* See device_option.h. */
#include "src/options/device_option.h"

#include <string.h>

#include "src/tensor/cards.h"

const char *const fsdp_device_words[] = {"auto", "cpu", "cuda", NULL};

static fsdp_status check_device(const char *name, bool plans)
{
    int n;
    FSDP_TRY(fsdp_device_check_name(name));
    if (plans)
        return FSDP_OK;
    if (strncmp(name, "meta", 4) == 0)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "device meta computes nothing: 'fsdp plan' reports the memory of a run of "
            "'fsdp train'");
    if (fsdp_device_name_is_cuda(name) && !fsdp_card_functions())
        return fsdp_cards_count(&n);
    return FSDP_OK;
}

fsdp_status fsdp_check_device_option(const fsdp_options *options, const char *name, bool plans)
{
    const char *source = fsdp_options_source(options, "device");
    const fsdp_status status = check_device(name, plans);
    if (status != FSDP_OK)
        fsdp_error_context(status, "%s", source ? source : "--device");
    return status;
}
