//! A tree of lines.

/// A line and what hangs below it.
#[derive(Debug, Default)]
pub(super) struct Node {
    text: String,
    children: Vec<Node>,
}

impl Node {
    /// A line.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            children: Vec::new(),
        }
    }

    /// Hangs a line below this one.
    pub(super) fn push(&mut self, child: impl Into<Self>) {
        self.children.push(child.into());
    }

    /// Hangs `name: value` below this one, unless there is no value.
    pub(super) fn field(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.push(format!("{name}: {value}"));
        }
    }

    /// The tree as text.
    pub(super) fn render(&self) -> String {
        let mut text = format!("{}\n", self.text);
        self.render_children(&mut text, "");
        text
    }

    fn render_children(&self, text: &mut String, indent: &str) {
        let last = self.children.len().saturating_sub(1);
        for (index, child) in self.children.iter().enumerate() {
            let (branch, below) = if index == last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            text.push_str(&format!("{indent}{branch}{}\n", child.text));
            child.render_children(text, &format!("{indent}{below}"));
        }
    }
}

impl<T: Into<String>> From<T> for Node {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_drawn() {
        let mut group = Node::new("group");
        group.push("pod a");
        group.push("pod b");
        let mut root = Node::new("cluster");
        root.push(group);
        root.field("image", "x");
        root.field("empty", "");
        assert_eq!(
            root.render(),
            "cluster\n├─ group\n│  ├─ pod a\n│  └─ pod b\n└─ image: x\n"
        );
    }
}
