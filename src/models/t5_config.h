/* config.json of T5 as a document; <fsdp/models.h> has the rest. */
#pragma once
#include <fsdp/models.h>

#include "src/base/json.h"

/* fsdp_t5_config_read() for a document. */
FSDP_MUST_CHECK fsdp_status fsdp_t5_config_parse(fsdp_json *doc, fsdp_t5_config *config);
