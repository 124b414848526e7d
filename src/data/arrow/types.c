/* Those functions of metadata.h that need no library: names of types, and memory. */
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/data/arrow/metadata.h"

const char *fsdp_arrow_type_name(fsdp_arrow_type type)
{
    static const char *const names[] = {[FSDP_ARROW_NULL] = "null",
                                        [FSDP_ARROW_INT] = "int",
                                        [FSDP_ARROW_FLOAT] = "float",
                                        [FSDP_ARROW_BINARY] = "binary",
                                        [FSDP_ARROW_STRING] = "string",
                                        [FSDP_ARROW_BOOL] = "bool",
                                        [FSDP_ARROW_DECIMAL] = "decimal",
                                        [FSDP_ARROW_DATE] = "date",
                                        [FSDP_ARROW_TIME] = "time",
                                        [FSDP_ARROW_TIMESTAMP] = "timestamp",
                                        [FSDP_ARROW_INTERVAL] = "interval",
                                        [FSDP_ARROW_LIST] = "list",
                                        [FSDP_ARROW_STRUCT] = "struct",
                                        [FSDP_ARROW_UNION] = "union",
                                        [FSDP_ARROW_FIXED_SIZE_BINARY] = "fixed_size_binary",
                                        [FSDP_ARROW_FIXED_SIZE_LIST] = "fixed_size_list",
                                        [FSDP_ARROW_MAP] = "map",
                                        [FSDP_ARROW_DURATION] = "duration",
                                        [FSDP_ARROW_LARGE_BINARY] = "large_binary",
                                        [FSDP_ARROW_LARGE_STRING] = "large_string",
                                        [FSDP_ARROW_LARGE_LIST] = "large_list",
                                        [FSDP_ARROW_RUN_END_ENCODED] = "run_end_encoded",
                                        [FSDP_ARROW_BINARY_VIEW] = "binary_view",
                                        [FSDP_ARROW_STRING_VIEW] = "string_view",
                                        [FSDP_ARROW_LIST_VIEW] = "list_view",
                                        [FSDP_ARROW_LARGE_LIST_VIEW] = "large_list_view"};
    FSDP_ASSERT(type > 0 && (size_t)type < FSDP_LENGTH(names));
    return names[type];
}

void fsdp_arrow_schema_fini(fsdp_arrow_schema *schema)
{
    fsdp_free(schema->fields);
    fsdp_free(schema->bytes);
    *schema = (fsdp_arrow_schema){0};
}

void fsdp_arrow_message_fini(fsdp_arrow_message *message)
{
    fsdp_free(message->nodes);
    fsdp_free(message->buffers);
    fsdp_free(message->variadic);
    *message = (fsdp_arrow_message){0};
}

void fsdp_arrow_footer_fini(fsdp_arrow_footer *footer)
{
    fsdp_free(footer->dictionaries);
    fsdp_free(footer->batches);
    *footer = (fsdp_arrow_footer){0};
}
