//! Package names of pip, conda and Debian: parsed, and rendered again from what was understood.
//!
//! What comes out is safe as one line of a requirements file, and as one word in single quotes.

use super::requirement::Requirement;

/// Longest package that anyone needs; keeps hostile input from costing time.
const MAX_LENGTH: usize = 256;

/// What conda compares versions with, and the mark of an epoch, as in `1!2.0`.
const CONDA_SIGNS: [&str; 9] = ["=", "==", "<", "<=", ">", ">=", "!=", "~=", "!"];

/// A Python package (PEP 508: name, extras, version, marker), rendered canonically.
///
/// # Errors
/// With a sentence for the person who wrote it.
pub fn pip_package(text: &str) -> Result<String, String> {
    check(text)?;
    let requirement: Requirement = text.parse().map_err(|reason| {
        format!("{text:?} is not a Python package as pip names them, such as torch==2.9.0: {reason}")
    })?;
    Ok(requirement.to_string())
}

/// A conda package: `[channel::]name[version[=build]]`, as `conda-forge::numpy>=2,<3`.
///
/// # Errors
/// With a sentence for the person who wrote it.
pub fn conda_package(text: &str) -> Result<String, String> {
    check(text)?;
    let wrong = || {
        format!(
            "{text:?} is not a conda package: write [channel::]name[version], such as conda-forge::numpy>=2,<3"
        )
    };
    let compact: String = text.split(' ').collect();
    let (channel, spec) = match compact.split_once("::") {
        Some((channel, spec)) => (Some(channel), spec),
        None => (None, compact.as_str()),
    };
    let word = |text: &str| {
        text.bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    if channel.is_some_and(|channel| !channel.split('/').all(word)) {
        return Err(wrong());
    }
    let end = spec.find(['=', '<', '>', '!', '~']).unwrap_or(spec.len());
    let (name, version) = spec.split_at(end);
    let in_version = |b: u8| b.is_ascii_alphanumeric() || b"=<>!~,|.*+_-".contains(&b);
    let ends_open = version.ends_with(['=', '<', '>', '!', '~', ',', '|']);
    let mut signs = version.split(|c: char| !"=<>!~".contains(c));
    let compares = signs.all(|sign| sign.is_empty() || CONDA_SIGNS.contains(&sign));
    if !word(name) || !version.bytes().all(in_version) || ends_open || !compares {
        return Err(wrong());
    }
    Ok(compact)
}

/// A Debian package: `name`, `name:arch`, `name=version` (Debian policy 5.6.1, 5.6.12).
///
/// # Errors
/// With a sentence for the person who wrote it.
pub fn system_package(text: &str) -> Result<String, String> {
    check(text)?;
    let wrong = || format!("{text:?} is not a Debian package: write name or name=version, in lower case");
    let (name, version) = match text.split_once('=') {
        Some((name, version)) => (name, Some(version)),
        None => (text, None),
    };
    let (name, architecture) = match name.split_once(':') {
        Some((name, architecture)) => (name, Some(architecture)),
        None => (name, None),
    };
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let name_is_valid = name.len() >= 2
        && name.bytes().next().is_some_and(lower)
        && name.bytes().all(|b| lower(b) || b"+.-".contains(&b))
        // apt reads a trailing - as "remove" and a trailing + as "install".
        && !name.ends_with('-')
        && (!name.ends_with('+') || name.ends_with("++"));
    let architecture_is_valid =
        architecture.is_none_or(|text| !text.is_empty() && text.bytes().all(|b| lower(b) || b == b'-'));
    let version_is_valid = version.is_none_or(|version| {
        version.bytes().next().is_some_and(|b| b.is_ascii_digit())
            && version
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b".+~:-".contains(&b))
    });
    if name_is_valid && architecture_is_valid && version_is_valid {
        Ok(text.to_owned())
    } else {
        Err(wrong())
    }
}

/// What no package of any kind may hold.
fn check(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("the package name is empty: remove the item".to_owned());
    }
    if text.len() > MAX_LENGTH {
        return Err(format!(
            "a package is at most {MAX_LENGTH} characters, this one is {}",
            text.len()
        ));
    }
    if let Some(odd) = text.chars().find(|c| c.is_control()) {
        return Err(format!(
            "{text:?} holds the control character {odd:?}: write one package an item, without line breaks"
        ));
    }
    if text.trim_start().starts_with('-') {
        return Err(format!(
            "{text:?} is an option, not a package: options have fields of their own"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pip_packages_of_real_lists_pass() {
        for (text, rendered) in [
            ("tensorflow==2.3.0", "tensorflow==2.3.0"),
            ("scipy>=1.15.0", "scipy>=1.15.0"),
            ("pandas<3,>=2", "pandas>=2,<3"),
            ("ray[serve]==2.46.0", "ray[serve]==2.46.0"),
            ("torch == 2.1.0+cu118", "torch==2.1.0+cu118"),
            ("Foo_Bar~=1.0", "foo-bar~=1.0"),
            ("numpy==1.*", "numpy==1.*"),
            ("a [ b, C_d ] (>=1)", "a[b,c-d]>=1"),
            (
                "a;(os_name=='nt' or 'arm' not in platform_machine) and extra != \"x\"",
                "a ; (os_name == 'nt' or 'arm' not in platform_machine) and extra != 'x'",
            ),
            ("x ; python_version < '3.12'", "x ; python_version < '3.12'"),
        ] {
            assert_eq!(pip_package(text).as_deref(), Ok(rendered), "{text}");
        }
    }

    #[test]
    fn pip_packages_that_would_be_something_else_are_refused() {
        for text in [
            "",
            " ",
            "--index-url=http://evil",
            "-e .",
            "a\nb",
            "a\rb",
            "a\0",
            "a b",
            "a @ https://evil.example/a.whl",
            "a @ file:///etc/passwd",
            "./a",
            "git+https://evil.example/a",
            "a # comment",
            "a==1 --hash=sha256:00",
            "a; sys_platform == 'x --hash=y'",
            "a; sys_platform == '${TOKEN}'",
            "a; sys_platform == 'x #'",
            "a==1\\",
            "a;",
            "A-:",
            "a[b",
            "a[b-]",
            "a;os_name",
            "a;os_namex=='y'",
            "a;os_name in'x' nor",
            "a;((((((((((os_name=='x'))))))))))",
            "ä",
            "$(id)",
        ] {
            assert!(
                pip_package(text).is_err(),
                "{text:?} passed as {:?}",
                pip_package(text)
            );
        }
    }

    #[test]
    fn conda_packages() {
        for (text, rendered) in [
            ("numpy", "numpy"),
            ("numpy=1.26", "numpy=1.26"),
            ("numpy >=2, <3", "numpy>=2,<3"),
            ("conda-forge::libblas=3.9=*mkl", "conda-forge::libblas=3.9=*mkl"),
            ("pytz==1!2.0|~=2.1,!=2.2", "pytz==1!2.0|~=2.1,!=2.2"),
        ] {
            assert_eq!(conda_package(text).as_deref(), Ok(rendered));
        }
        for text in [
            "-c evil",
            "a b>",
            "a;id",
            "a'b",
            "a\nb",
            "::a",
            "a[channel=x]",
            "http://x::a",
            "a=$(id)",
            "a>=",
            "a<<EOF",
            "a=>1",
        ] {
            assert!(conda_package(text).is_err(), "{text:?} passed");
        }
    }

    #[test]
    fn system_packages() {
        for text in [
            "vim",
            "git",
            "g++",
            "libstdc++6",
            "libc6:amd64",
            "git=1:2.39.5-0+deb12u1",
            "python3.11",
        ] {
            assert_eq!(system_package(text).as_deref(), Ok(text));
        }
        for text in [
            "vim-",
            "vim+",
            "Vim",
            "v",
            "vim git",
            "vim=",
            "vim/stable",
            "-oX=y",
            "vim;id",
            "./a.deb",
            "vim\n",
        ] {
            assert!(system_package(text).is_err(), "{text:?} passed");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]

        #[test]
        fn rendering_is_stable_and_stays_one_plain_line(text in "\\PC{0,40}|[a-z0-9 ;'\"=<>!~,.\\[\\]@#$\\\\-]{0,40}|a(\\[[a-c,._-]{0,5}\\])?([<>=!~]{1,3}[0-9a-z.*+!_-]{0,8},?){0,2}( ?; ?(python_version|os_name|extra|'[^']{0,3}') ?(<|==|in|not in) ?'[0-9a-z.*-]{0,5}')?") {
            for parse in [pip_package, conda_package, system_package] {
                if let Ok(once) = parse(&text) {
                    prop_assert!(!once.starts_with('-') && !once.chars().any(char::is_control), "{once:?}");
                    prop_assert_eq!(parse(&once), Ok(once.clone()));
                }
            }
        }
    }
}
