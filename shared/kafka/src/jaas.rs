//! `sasl.jaas.config`, the Java way to give a user name and a password.

/// User name and password of a `PlainLoginModule` or `ScramLoginModule` line.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) username: String,
    pub(crate) password: String,
}

/// Reads `module required name="value" …;`. The error says what is wrong and never repeats the text (B68).
pub(crate) fn parse(text: &str) -> Result<Login, String> {
    let text = text.trim();
    let module = text.split_whitespace().next().unwrap_or_default();
    let short = module.rsplit('.').next().unwrap_or_default();
    if short != "PlainLoginModule" && short != "ScramLoginModule" {
        return Err(
            "only PlainLoginModule and ScramLoginModule are supported; for others set librdkafka's own sasl.* \
             properties"
                .into(),
        );
    }
    let mut username = None;
    let mut password = None;
    for (name, value) in options(&text[module.len()..])? {
        match name.as_str() {
            "username" => username = Some(value),
            "password" => password = Some(value),
            _ => {}
        }
    }
    match (username, password) {
        (Some(username), Some(password)) => Ok(Login { username, password }),
        (None, _) => Err("it has no username=\"…\"".into()),
        (_, None) => Err("it has no password=\"…\"".into()),
    }
}

/// `name=value` and `name="va\"lue"` pairs; the control flag (`required`) and the final `;` are skipped.
fn options(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace() || *c == ';').is_some() {}
        if chars.peek().is_none() {
            return Ok(found);
        }
        let mut name = String::new();
        while let Some(c) = chars.next_if(|c| !c.is_whitespace() && *c != '=' && *c != ';') {
            name.push(c);
        }
        if chars.next_if_eq(&'=').is_none() {
            continue; // the control flag
        }
        let mut value = String::new();
        match chars.next_if(|c| *c == '"' || *c == '\'') {
            Some(quote) => loop {
                match chars.next() {
                    Some('\\') => value.extend(chars.next()),
                    Some(c) if c == quote => break,
                    Some(c) => value.push(c),
                    None => return Err(format!("the value of {name} has no closing quote")),
                }
            },
            None => {
                while let Some(c) = chars.next_if(|c| !c.is_whitespace() && *c != ';') {
                    value.push(c);
                }
            }
        }
        found.push((name, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_modules_are_read_with_quotes_and_escapes() {
        for (text, username, password) in [
            (
                "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"alice\" password=\"s3;cret\";",
                "alice",
                "s3;cret",
            ),
            (
                "org.apache.kafka.common.security.scram.ScramLoginModule required\n  password='a\\'b' username=bob ;",
                "bob",
                "a'b",
            ),
        ] {
            let login = parse(text).unwrap();
            assert_eq!(
                (login.username.as_str(), login.password.as_str()),
                (username, password)
            );
        }
    }

    #[test]
    fn b68_an_unusable_line_is_refused_without_repeating_it() {
        for text in [
            "com.sun.security.auth.module.Krb5LoginModule required keyTab=\"hush\";",
            "x.PlainLoginModule required username=\"u\" password=\"hush",
            "x.PlainLoginModule required password=\"hush\";",
        ] {
            let error = parse(text).err().unwrap();
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
