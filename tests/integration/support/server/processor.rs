//! The processor of a server: the one under test or, in `make test-arm64`, also the other.

use std::fs;
use std::path::PathBuf;

use super::{Flavor, environment, from_env, module};

#[derive(Clone, Copy)]
pub enum Processor {
    /// The processor that all tests use.
    Tested,
    /// The machine's own processor, on which the tested one is emulated.
    Other,
}

impl Processor {
    pub fn other(self) -> Self {
        match self {
            Self::Tested => Self::Other,
            Self::Other => Self::Tested,
        }
    }

    /// The module for this processor.
    pub fn module(self) -> PathBuf {
        match self {
            Self::Tested => module(),
            Self::Other => {
                from_env("RATELIMIT_OTHER_MODULE", "target/release/libredis_ratelimit.so")
            }
        }
    }

    pub fn program(self, flavor: Flavor) -> PathBuf {
        let variable = match self {
            Self::Tested => "RATELIMIT_SERVERS",
            Self::Other => "RATELIMIT_OTHER_SERVERS",
        };
        let program = environment::more_program(flavor).unwrap_or_else(|| {
            from_env(variable, ".cache/servers").join(flavor.name).join("server")
        });
        assert!(program.exists(), "no {} at {}: run `make fetch`", flavor.name, program.display());
        program
    }

    /// The number of this processor in the header of the module, an ELF file.
    pub fn machine(self) -> [u8; 2] {
        let module = self.module();
        let elf = fs::read(&module).unwrap_or_else(|e| panic!("{}: {e}", module.display()));
        [elf[18], elf[19]]
    }
}
