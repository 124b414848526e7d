/* The functions of metadata.h for builds without FlatBuffers. Opening an Arrow file fails, so no
 * message is ever parsed. */
#include "src/data/arrow/metadata.h"

static fsdp_status without_flatbuffers(void)
{
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "Arrow: this build has no FlatBuffers (libflatbuffers-dev; 'make deps' "
                      "installs it)");
}

fsdp_status fsdp_arrow_message_parse(const void *data, size_t bytes, fsdp_arrow_message *message,
                                     fsdp_arrow_schema *schema)
{
    (void)data;
    (void)bytes;
    (void)message;
    (void)schema;
    return without_flatbuffers();
}

fsdp_status fsdp_arrow_footer_parse(const void *data, size_t bytes, fsdp_arrow_footer *footer,
                                    fsdp_arrow_schema *schema)
{
    (void)data;
    (void)bytes;
    (void)footer;
    (void)schema;
    return without_flatbuffers();
}

fsdp_status fsdp_arrow_schema_write(const fsdp_arrow_field *fields, size_t n_fields,
                                    const char *huggingface, void **data, size_t *bytes)
{
    (void)fields;
    (void)n_fields;
    (void)huggingface;
    (void)data;
    (void)bytes;
    return without_flatbuffers();
}

fsdp_status fsdp_arrow_batch_write(const fsdp_arrow_message *message, void **data, size_t *bytes)
{
    (void)message;
    (void)data;
    (void)bytes;
    return without_flatbuffers();
}
