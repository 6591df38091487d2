"""What a client of the registry may hear: error codes, their HTTP statuses, and the texts that clients know.

The status is the code without its last two digits. Texts are Confluent's: clients and their tests compare them.
"""

from __future__ import annotations


class RegistryError(Exception):
    """A request that is refused. It becomes `{"error_code": code, "message": message}`."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(which: object = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if which is None else f"Schema {which} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40406, f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted")


def config_not_found(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_found(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: str) -> RegistryError:
    # 409, not Confluent's later 40901: clients compare it.
    return RegistryError(
        409, f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: {details}'
    )


def invalid_schema(why: str) -> RegistryError:
    return RegistryError(42201, why)


def reference_not_found(subject: str, version: int) -> RegistryError:
    return invalid_schema(f'No schema reference found for subject "{subject}" and version {version}')


def invalid_version(version: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def invalid_level() -> RegistryError:
    return RegistryError(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def invalid_mode() -> RegistryError:
    return RegistryError(42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT and FORWARD")


def not_permitted(why: str) -> RegistryError:
    return RegistryError(42205, why)


def reference_exists(subject: str, version: int) -> RegistryError:
    return RegistryError(
        42206, f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},version={version}}}."
    )


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid.")


def too_large(why: str) -> RegistryError:
    return RegistryError(42209, why)


def invalid_rules(why: str) -> RegistryError:
    return RegistryError(42210, f"Invalid rule set: {why}")


def store_failed(why: str) -> RegistryError:
    return RegistryError(50001, why)


def timed_out(why: str) -> RegistryError:
    return RegistryError(50002, why)


def forwarding_failed(why: str) -> RegistryError:
    return RegistryError(50003, why)


def no_leader(why: str) -> RegistryError:
    return RegistryError(50004, why)
